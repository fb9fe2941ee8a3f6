// The whole Worker. Its settings are in wrangler.jsonc, in secrets, and in the KV namespace of gateway keys.
export { default, SallyportLimits, SallyportRecordings } from "sallyport/workers";
