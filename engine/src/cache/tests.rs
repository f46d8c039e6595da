use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn cache(pages: u32) -> PageCache {
    PageCache::new(CacheConfig { pages, groups: vec![CacheGroup::TARGET] })
}

fn tokens(values: impl IntoIterator<Item = u32>) -> Tokens {
    Tokens::new(values.into_iter().collect::<Vec<_>>().into())
}

fn shared() -> Namespace {
    Namespace::Salt(None)
}

/// Opens, grows over the whole sequence, and publishes all of it.
fn filled(cache: &mut PageCache, namespace: Namespace, tokens: &Tokens) -> BlockTable {
    let mut table = cache.open(namespace, tokens, true);
    cache.grow(&mut table, tokens.len()).unwrap();
    cache.publish(&mut table, tokens, tokens.len());
    cache.check_integrity([&table]).unwrap();
    table
}

#[test]
fn a_prefix_is_found_again_page_by_page() {
    let mut cache = cache(10);
    let first = tokens(0..40);
    let table = filled(&mut cache, shared(), &first);
    let pages = table.pages().to_vec();
    assert_eq!(table.published(), 2);
    cache.close(table);
    assert_eq!(cache.usage(), CacheUsage { total: 10, free: 8, held: 0, cached: 2 });

    let longer = cache.open(shared(), &tokens(0..100), true);
    assert_eq!(longer.pages(), &pages[..2]);
    let other = cache.open(shared(), &tokens((0..16).chain(50..100)), true);
    assert_eq!(other.pages(), &pages[..1]);
    let none = cache.open(shared(), &tokens(1..100), true);
    assert!(none.pages().is_empty());
    let unwanted = cache.open(shared(), &tokens(0..100), false);
    assert!(unwanted.pages().is_empty());
    cache.check_integrity([&longer, &other, &none, &unwanted]).unwrap();
}

#[test]
fn the_last_token_is_always_left_to_compute() {
    let mut cache = cache(10);
    let table = filled(&mut cache, shared(), &tokens(0..32));
    cache.close(table);
    for (length, hit) in [(16, 0), (17, 1), (31, 1), (32, 1), (33, 2)] {
        let table = cache.open(shared(), &tokens(0..length), true);
        assert_eq!(table.pages().len(), hit, "{length} tokens");
        cache.close(table);
    }
}

#[test]
fn namespaces_do_not_share() {
    let mut cache = cache(20);
    let names = [shared(), Namespace::Salt(Some(Arc::from("a"))), Namespace::Private(0), Namespace::Private(1)];
    for name in &names {
        let table = filled(&mut cache, name.clone(), &tokens(0..33));
        cache.close(table);
    }
    assert_eq!(cache.usage().cached, 8);
    let tables: Vec<_> = names.iter().map(|name| cache.open(name.clone(), &tokens(0..33), true)).collect();
    let mut pages: Vec<_> = tables.iter().flat_map(|table| table.pages()).collect();
    pages.sort();
    pages.dedup();
    assert_eq!(pages.len(), 8);
}

#[test]
fn equal_work_done_twice_ends_in_one_page() {
    let mut cache = cache(10);
    let text = tokens(0..48);
    let mut first = cache.open(shared(), &text, true);
    let mut second = cache.open(shared(), &text, true);
    cache.grow(&mut first, 48).unwrap();
    cache.grow(&mut second, 48).unwrap();
    cache.publish(&mut first, &text, 48);
    cache.publish(&mut second, &text, 40);
    assert_eq!(first.pages()[..2], second.pages()[..2]);
    assert_ne!(first.pages()[2], second.pages()[2]);
    cache.check_integrity([&first, &second]).unwrap();
    cache.close(first);
    cache.check_integrity([&second]).unwrap();
    cache.close(second);
    assert_eq!(cache.usage(), CacheUsage { total: 10, free: 7, held: 0, cached: 3 });
}

#[test]
fn the_least_recently_used_leaf_goes_first() {
    let mut cache = cache(6);
    for start in [0, 100, 200] {
        let table = filled(&mut cache, shared(), &tokens(start..start + 32));
        cache.close(table);
    }
    let used = cache.open(shared(), &tokens(0..33), true);
    cache.close(used);
    // Idle order is now: 100.. and 200.. before 0..; of each, the second page before the first.
    let mut table = cache.open(shared(), &tokens(900..1000), true);
    cache.grow(&mut table, 48).unwrap();
    let left = |cache: &mut PageCache, start: u32| {
        let found = cache.open(shared(), &tokens(start..start + 33), true);
        let pages = found.pages().len();
        cache.close(found);
        pages
    };
    assert_eq!([left(&mut cache, 0), left(&mut cache, 100), left(&mut cache, 200)], [2, 0, 1]);
    cache.check_integrity([&table]).unwrap();
}

#[test]
fn too_few_pages_change_nothing() {
    let mut cache = cache(3);
    let mut held = cache.open(shared(), &tokens(0..1), true);
    cache.grow(&mut held, 16).unwrap();
    let mut table = cache.open(shared(), &tokens(0..1), true);
    assert_eq!(cache.grow(&mut table, 33), Err(OutOfPages { needed: 3, available: 2 }));
    assert!(table.pages().is_empty());
    let releases = cache.releases();
    cache.close(held);
    assert!(cache.releases() > releases);
    cache.grow(&mut table, 33).unwrap();
    cache.check_integrity([&table]).unwrap();
}

#[test]
fn surplus_pages_come_back_but_published_ones_stay() {
    let mut cache = cache(8);
    let text = tokens(0..40);
    let mut table = filled(&mut cache, shared(), &text);
    cache.grow(&mut table, 128).unwrap();
    cache.shrink(&mut table, 41);
    assert_eq!(table.pages().len(), 3);
    cache.shrink(&mut table, 0);
    assert_eq!(table.pages().len(), 2);
    cache.check_integrity([&table]).unwrap();
}

#[test]
fn a_page_is_published_only_when_full_written_and_followed() {
    let draft = CacheGroup { name: "draft", needs_next_token: true };
    for (groups, followed) in [(vec![CacheGroup::TARGET], false), (vec![CacheGroup::TARGET, draft], true)] {
        let mut cache = PageCache::new(CacheConfig { pages: 8, groups });
        let text = tokens(0..32);
        let mut table = cache.open(shared(), &text, true);
        cache.grow(&mut table, 32).unwrap();
        cache.publish(&mut table, &text, 15);
        assert_eq!(table.published(), 0);
        cache.publish(&mut table, &text, 16);
        assert_eq!(table.published(), 1);
        cache.publish(&mut table, &text, 32);
        assert_eq!(table.published(), if followed { 1 } else { 2 });
        cache.close(table);
        // The same page with another token after it.
        let found = cache.open(shared(), &tokens((0..16).chain(77..99)), true);
        assert_eq!(found.pages().len(), if followed { 0 } else { 1 });
    }
}

#[test]
fn a_lost_page_is_noticed_and_never_served() {
    let mut cache = cache(4);
    let table = filled(&mut cache, shared(), &tokens(0..32));
    cache.close(table);
    let table = cache.open(shared(), &tokens(0..32), true);
    let page = table.pages()[0];
    cache.close(table);
    // What a defect elsewhere might do: free a page that the tree still lists.
    cache.pool.reclaim(page);
    assert!(cache.check_integrity([]).unwrap_err().0.contains("has lost its page"));
    let table = cache.open(shared(), &tokens(0..32), true);
    assert!(table.pages().is_empty());
    assert_eq!(cache.integrity_failures(), 1);
}

#[test]
fn an_open_table_that_nobody_lists_is_a_leak() {
    let mut cache = cache(4);
    let table = filled(&mut cache, shared(), &tokens(0..20));
    let error = cache.check_integrity([]).unwrap_err();
    assert!(error.0.contains("is listed 0 times and counted 1 times"), "{error}");
    cache.close(table);
    cache.check_integrity([]).unwrap();
}

#[derive(Clone, Debug)]
enum Action {
    Open { text: usize, reuse: bool },
    Extend { table: usize, by: usize },
    Shrink { table: usize },
    Close { table: usize },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0..6usize, any::<bool>()).prop_map(|(text, reuse)| Action::Open { text, reuse }),
        5 => (any::<usize>(), 1..40usize).prop_map(|(table, by)| Action::Extend { table, by }),
        1 => any::<usize>().prop_map(|table| Action::Shrink { table }),
        2 => any::<usize>().prop_map(|table| Action::Close { table }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Texts share prefixes of several lengths; whatever happens in whatever order, the books balance.
    #[test]
    fn books_balance_after_anything(
        pages in 1..24u32,
        draft in any::<bool>(),
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let mut groups = vec![CacheGroup::TARGET];
        groups.extend(draft.then_some(CacheGroup { name: "draft", needs_next_token: true }));
        let mut cache = PageCache::new(CacheConfig { pages, groups });
        let texts: Vec<Tokens> =
            (0..6u32).map(|text| tokens((0..200).map(|at| if at < text * 20 { at } else { at + 1000 * text }))).collect();
        let mut open: Vec<(BlockTable, usize, usize)> = Vec::new();
        for action in actions {
            match action {
                Action::Open { text, reuse } => {
                    let table = cache.open(shared(), &texts[text], reuse);
                    let written = table.published() * PAGE_SIZE;
                    open.push((table, text, written));
                }
                Action::Extend { table, by } if !open.is_empty() => {
                    let count = open.len();
                    let (table, text, written) = &mut open[table % count];
                    let target = (*written + by).min(200);
                    if cache.grow(table, target).is_ok() {
                        *written = target;
                        cache.publish(table, &texts[*text], target);
                    }
                }
                Action::Shrink { table } if !open.is_empty() => {
                    let count = open.len();
                    let (table, _, written) = &mut open[table % count];
                    let _ = cache.grow(table, *written + 50);
                    cache.shrink(table, *written);
                }
                Action::Close { table } if !open.is_empty() => {
                    let (table, ..) = open.swap_remove(table % open.len());
                    cache.close(table);
                }
                _ => {}
            }
            let tables = open.iter().map(|(table, ..)| table);
            prop_assert_eq!(cache.check_integrity(tables), Ok(()));
        }
        open.into_iter().for_each(|(table, ..)| cache.close(table));
        prop_assert_eq!(cache.available(), pages as usize);
        prop_assert_eq!(cache.integrity_failures(), 0);
        prop_assert_eq!(cache.check_integrity([]), Ok(()));
    }
}
