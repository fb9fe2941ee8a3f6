/** Who is there, compared with a `Set`. */
// runtimes: once
import { describe, it } from "@std/testing/bdd";
import assert from "node:assert/strict";
import fc from "fast-check";
import { systemClock } from "../../src/exchange/clock.ts";
import { Exchange } from "../../src/exchange/exchange.ts";
import { OpenExchanges } from "../../src/exchange/open_exchanges.ts";

describe("open exchanges", () => {
  it("are those that came and did not go, in whichever order they go", () => {
    fc.assert(fc.property(fc.array(fc.nat(20), { maxLength: 60 }), (moves) => {
      const [open, model] = [new OpenExchanges(), new Set<Exchange>()];
      for (const move of moves) {
        const leaving = [...model][move];
        if (leaving === undefined) {
          const exchange = new Exchange(systemClock);
          open.add(exchange);
          model.add(exchange);
        } else {
          open.delete(leaving);
          model.delete(leaving);
        }
        assert.equal(open.size, model.size);
        assert.deepEqual(new Set(open), model);
      }
    }));
  });

  it("can go while they are gone through", () => {
    const open = new OpenExchanges();
    for (let count = 0; count < 5; count++) open.add(new Exchange(systemClock));
    for (const exchange of open) open.delete(exchange);
    assert.equal(open.size, 0);
  });
});
