// The whole Worker. What it does is set in wrangler.jsonc, by secrets, and in the KV namespace of gateway keys.
export { default, SallyportLimits, SallyportRecordings } from "sallyport/workers";
