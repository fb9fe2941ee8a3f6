/** Which exchanges are open, in whichever order they begin and end. */
// runtimes: once
import { describe, it } from "@std/testing/bdd";
import assert from "node:assert/strict";
import fc from "fast-check";
import { systemClock } from "../../src/exchange/clock.ts";
import type { Exchange } from "../../src/exchange/exchange.ts";
import { OpenExchanges } from "../../src/exchange/open_exchanges.ts";

const request = { method: "GET", url: "/", headers: new Headers(), body: null };
const begin = (open: OpenExchanges) => open.begin(request, { clock: systemClock, observers: [] });

describe("open exchanges", () => {
  it("are those that began and are not settled, in whichever order they are", () => {
    fc.assert(fc.property(fc.array(fc.nat(20), { maxLength: 60 }), (moves) => {
      const [open, model] = [new OpenExchanges(), new Set<Exchange>()];
      for (const move of moves) {
        const leaving = [...model][move];
        if (leaving === undefined) model.add(begin(open));
        else {
          leaving.settle({ outcome: "ok" });
          model.delete(leaving);
        }
        assert.equal(open.size, model.size);
        assert.deepEqual(new Set(open), model);
      }
      for (const exchange of open) exchange.settle({ outcome: "ok" });
    }));
  });

  it("can be settled while they are gone through", async () => {
    const open = new OpenExchanges();
    for (let count = 0; count < 5; count++) begin(open);
    const empty = open.whenEmpty();
    for (const exchange of open) exchange.settle({ outcome: "ok" });
    assert.equal(open.size, 0);
    await empty;
  });
});
