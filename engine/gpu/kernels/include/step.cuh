// One step's integers in device memory, as the host lays them out: its twin is src/step, where layout.rs says where each
// array lies. Everything that changes between replays of a graph is here; kernels get the addresses of the arrays, which
// never change.
#pragma once

#include "base.cuh"

// Positions in a page of the cache.
constexpr u32 PAGE = 16;

// Marks a token as the place of one that the device has chosen.
constexpr u32 CHOSEN = 0x80000000u;

// How much of each array is in use. Rows from `rows` up to the bucket are padding: nothing is stored for them.
struct StepCounts {
    u32 rows;
    u32 segments;
    u32 logit_rows;
    // Work items of the kernel that splits over the context, and of the one that does not.
    u32 split_items;
    u32 whole_items;
    u32 moves;
    u32 reserved[2];
};

// Rows of one sequence.
struct StepSegment {
    u32 first_row;
    u32 rows;
    // Positions that are in the cache already; row `i` is written to position `start + i`.
    u32 start;
    // First of the sequence's pages in the array of pages.
    u32 first_page;
    // Every row sees positions below this; above, the tree mask says. NONE without a tree.
    u32 committed;
    // First word of the mask, and words of one row.
    u32 first_word;
    u32 row_words;
    u32 reserved;
};

// A cached row that goes to another place: page times PAGE plus the position in it.
struct RowMove {
    u32 from;
    u32 to;
};

// Rows of one segment against part of the context.
struct AttentionItem {
    u32 segment;
    // Of the segment's rows.
    u32 first_row;
    u32 rows;
    // Positions `begin..end`; `begin` is the first of a page.
    u32 begin;
    u32 end;
    // Which of `parts` parts of the context of these rows, and the workspace's place of part 0.
    u32 part;
    u32 parts;
    u32 place;
};
