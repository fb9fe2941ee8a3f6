/**
 * Every method of the `openai` library has the same effect through the gateway as directly at the
 * provider.
 */
// runtimes: bun, node
import OpenAI from "openai";
import { describeMatrix, type Library } from "../support/client_matrix.ts";
import { UPSTREAM_KEY } from "../support/gateway.ts";

const MODEL = "test-1";
const CHAT: Omit<OpenAI.ChatCompletionCreateParams, "stream"> = {
  model: MODEL,
  messages: [{ role: "user", content: "Hi" }],
};
const OUTPUTS = { thread_id: "thread_1", tool_outputs: [{ tool_call_id: "call_1", output: "42" }] };
const RUN = { assistant_id: "asst_1" };
const file = () => new File(["a,b\n1,2\n"], "a.csv", { type: "text/csv" });

/** Helpers of the library, which call other methods. */
const HELPERS: Library<OpenAI>["own"] = {
  "chat.completions.parse": ({ chat }) => chat.completions.parse({ ...CHAT }),
  "chat.completions.runTools": ({ chat }) =>
    chat.completions.runTools({ ...CHAT, tools: [] }).finalContent(),
  "chat.completions.stream": ({ chat }) => chat.completions.stream({ ...CHAT }),
  "files.waitForProcessing": ({ files }) => files.waitForProcessing("file-1"),
  "vectorStores.files.createAndPoll": ({ vectorStores }) =>
    vectorStores.files.createAndPoll("vs_1", { file_id: "file-1" }, { pollIntervalMs: 7 }),
  "vectorStores.files.poll": ({ vectorStores }) => vectorStores.files.poll("vs_1", "file-1"),
  "vectorStores.files.upload": ({ vectorStores }) => vectorStores.files.upload("vs_1", file()),
  "vectorStores.files.uploadAndPoll": ({ vectorStores }) =>
    vectorStores.files.uploadAndPoll("vs_1", file()),
  "vectorStores.fileBatches.createAndPoll": ({ vectorStores }) =>
    vectorStores.fileBatches.createAndPoll("vs_1", { file_ids: ["file-1"] }),
  "vectorStores.fileBatches.poll": ({ vectorStores }) =>
    vectorStores.fileBatches.poll("vs_1", "vsfb_1"),
  "vectorStores.fileBatches.uploadAndPoll": ({ vectorStores }) =>
    vectorStores.fileBatches.uploadAndPoll("vs_1", { files: [file()] }),
  "beta.agents.environments.files.prepare": ({ beta }) =>
    beta.agents.environments.files.prepare({ "/workspace/a.csv": file() }),
  "beta.agents.environments.files.upload": ({ beta }) =>
    beta.agents.environments.files.upload("env_1", { path: "/workspace/a.csv", file: file() }),
  "beta.agents.sessions.stream": ({ beta }) =>
    beta.agents.sessions.stream("session_1", { input: "Hi", idempotencyKey: "key-1" }),
  "beta.threads.createAndRunPoll": ({ beta }) => beta.threads.createAndRunPoll(RUN),
  "beta.threads.createAndRunStream": ({ beta }) => beta.threads.createAndRunStream(RUN),
  "beta.threads.runs.createAndPoll": ({ beta }) => beta.threads.runs.createAndPoll("thread_1", RUN),
  "beta.threads.runs.createAndStream": ({ beta }) =>
    beta.threads.runs.createAndStream("thread_1", RUN),
  "beta.threads.runs.poll": ({ beta }) =>
    beta.threads.runs.poll("run_1", { thread_id: "thread_1" }),
  "beta.threads.runs.stream": ({ beta }) => beta.threads.runs.stream("thread_1", RUN),
  "beta.threads.runs.submitToolOutputsAndPoll": ({ beta }) =>
    beta.threads.runs.submitToolOutputsAndPoll("run_1", OUTPUTS),
  "beta.threads.runs.submitToolOutputsStream": ({ beta }) =>
    beta.threads.runs.submitToolOutputsStream("run_1", OUTPUTS),
  "responses.parse": ({ responses }) => responses.parse({ model: MODEL, input: "Hi" }),
  "responses.stream": ({ responses }) => responses.stream({ model: MODEL, input: "Hi" }),
};

describeMatrix<OpenAI>({
  name: "openai",
  create: ({ url, ...options }) =>
    new OpenAI({
      baseURL: `${url}/v1`,
      apiKey: UPSTREAM_KEY,
      adminAPIKey: UPSTREAM_KEY,
      maxRetries: 0,
      ...options,
    }),
  own: HELPERS,
});
