/** Settings of Vitest, only for the conformance tests of the durable-streams protocol. */
const settings: { readonly test: Readonly<Record<string, unknown>> } = {
  test: {
    include: ["tests/support/durable_streams_suite.ts"],
    // Some tests wait for the end of a long-poll.
    testTimeout: 10_000,
    watch: false,
  },
};

export default settings;
