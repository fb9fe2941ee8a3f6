// Stand-in for jsr:@std/testing/bdd, which registers with Deno.test and so runs on Deno alone.
export {
  after as afterAll,
  afterEach,
  before as beforeAll,
  beforeEach,
  describe,
  it,
} from "node:test";
