// Token ids that llama.cpp gives for a JSON list of strings on standard input.
//
//     node llama_cpp_tokenize.mjs NODE_LLAMA_CPP_INDEX_JS MODEL_GGUF < texts.json

import {readFileSync} from "node:fs";

const [, , library, modelPath] = process.argv;
const {getLlama} = await import(library);
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", skipDownload: true});
const model = await llama.loadModel({modelPath, gpuLayers: 0});
const texts = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => Array.from(model.tokenize(text, true, "trimLeadingSpace")))));
process.exit(0);
