// Greedy tokens of llama.cpp (by node-llama-cpp) after prompts in SmolLM2's chat form, each with the gap between its
// two best logits.
//
//   node llama_cpp.mjs NODE_MODULES MODEL.gguf PROMPTS.json      JSON on stdout

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const OUTPUT = 64;
const CONTEXT = 256;

const [modules, modelPath, promptsPath] = process.argv.slice(2);
if (!promptsPath) {
  console.error("usage: llama_cpp.mjs NODE_MODULES MODEL.gguf PROMPTS.json");
  process.exit(2);
}
const packageJson = JSON.parse(readFileSync(join(modules, "node-llama-cpp", "package.json"), "utf8"));
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(join(modules, "node-llama-cpp", "dist", "index.js")));
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: 2 });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: CONTEXT, threads: 2 });
const sequence = context.getSequence();

// The model's template with its default system message.
const chat = (text) =>
  "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n" +
  `<|im_start|>user\n${text}<|im_end|>\n<|im_start|>assistant\n`;

// The two best tokens after `tokens`, with their logits; an end of turn is a token like any other.
async function best(tokens) {
  const last = [tokens.at(-1), { generateNext: { logits: { filter: { includeTop: 2 } } } }];
  const results = await sequence.controlledEvaluate([...tokens.slice(0, -1), last]);
  return [...results.at(-1).next.logits].sort((left, right) => right[1] - left[1]);
}

const round = (value) => Number(value.toFixed(4));
const prompts = [];
for (const text of JSON.parse(readFileSync(promptsPath, "utf8"))) {
  await sequence.clearHistory();
  const tokens = [...model.tokenize(chat(text), true)];
  const [greedy, gaps] = [[], []];
  let next = tokens;
  while (greedy.length < OUTPUT) {
    const [[token, logit], [, second]] = await best(next);
    greedy.push(token);
    gaps.push(round(logit - second));
    next = [token];
  }
  prompts.push({ text, tokens, greedy, gaps });
  console.error(`${text}\n  ${JSON.stringify(model.detokenize(greedy))}`);
}
const digest = createHash("sha256").update(readFileSync(modelPath)).digest("hex");
const lines = prompts.map((prompt) => "    " + JSON.stringify(prompt));
console.log(
  `{\n  "made_by": "node-llama-cpp ${packageJson.version}, llama.cpp ${llama.llamaCppRelease.release}",\n` +
    `  "model_sha256": "${digest}",\n  "prompts": [\n${lines.join(",\n")}\n  ]\n}`,
);
await llama.dispose();
