// Speed of llama.cpp (by node-llama-cpp) with the prompts of examples/model_bench.rs.
//
//   node llama_cpp.mjs measure NODE_MODULES MODEL.gguf THREADS   one line of JSON
//   node llama_cpp.mjs summary OURS THEIRS                       medians and ratios; exit 1 if a goal is missed
//
// OURS and THEIRS are files with a line of JSON for each round.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const PROMPT = 512;
const SHORT_PROMPT = 16;
const OUTPUT = 64;
const GOALS = { decode: 1.5, prefill: 1.5, bandwidth: 0.55, streams: 3 };

const prompt = (count) => Array.from({ length: count }, (_, at) => ((at * 7919 + 13) % 40000) + 100);

async function measure(modules, modelPath, threads) {
  const entry = pathToFileURL(join(modules, "node-llama-cpp", "dist", "index.js"));
  const { getLlama, LlamaLogLevel } = await import(entry);
  const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads });
  const model = await llama.loadModel({ modelPath });
  const context = await model.createContext({ contextSize: PROMPT + OUTPUT, batchSize: PROMPT, threads });
  const sequence = context.getSequence();
  let prefill = 0;
  for (let run = 0; run < 3; run++) {
    await sequence.clearHistory();
    const begin = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(prompt(PROMPT));
    prefill = Math.max(prefill, PROMPT / ((performance.now() - begin) / 1000));
  }
  await sequence.clearHistory();
  let count = -1;
  let begin = 0;
  for await (const _ of sequence.evaluate(prompt(SHORT_PROMPT), { temperature: 0, yieldEogToken: true })) {
    // The first token ends the prompt: the clock starts with it.
    if (++count === 0) begin = performance.now();
    if (count === OUTPUT) break;
  }
  if (count !== OUTPUT) throw new Error(`the model stopped after ${count} tokens`);
  const decode = OUTPUT / ((performance.now() - begin) / 1000);
  console.log(JSON.stringify({ prefill_tokens_per_second: prefill, decode_tokens_per_second: decode }));
  await llama.dispose();
}

function median(values) {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const lines = (file) => readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));

function summary(oursFile, theirsFile) {
  const [ours, theirs] = [lines(oursFile), lines(theirsFile)];
  const of = (rounds, key) => median(rounds.map((round) => round[key]));
  const [decode, prefill] = [of(ours, "decode_tokens_per_second"), of(ours, "prefill_tokens_per_second")];
  const figures = {
    rounds: ours.length,
    decode: { ours: decode, theirs: of(theirs, "decode_tokens_per_second") },
    prefill: { ours: prefill, theirs: of(theirs, "prefill_tokens_per_second") },
    bandwidth: of(ours, "decode_share_of_read_bandwidth"),
    streams: median(ours.map((round) => round.streams_tokens_per_second / round.decode_tokens_per_second)),
  };
  const ratios = {
    decode: figures.decode.ours / figures.decode.theirs,
    prefill: figures.prefill.ours / figures.prefill.theirs,
    bandwidth: figures.bandwidth,
    streams: figures.streams,
  };
  console.log(JSON.stringify({ ...figures, ratios, goals: GOALS }));
  const missed = Object.keys(GOALS).filter((goal) => !(ratios[goal] >= GOALS[goal]));
  for (const goal of Object.keys(GOALS)) {
    const verdict = missed.includes(goal) ? "missed" : "met";
    console.error(`${goal}: ${ratios[goal].toFixed(2)} (goal ${GOALS[goal]}): ${verdict}`);
  }
  process.exitCode = missed.length > 0 ? 1 : 0;
}

const [command, ...rest] = process.argv.slice(2);
if (command === "measure" && rest.length === 3) await measure(rest[0], rest[1], Number(rest[2]));
else if (command === "summary" && rest.length === 2) summary(...rest);
else {
  console.error("usage: llama_cpp.mjs measure NODE_MODULES MODEL.gguf THREADS | summary OURS THEIRS");
  process.exitCode = 2;
}
