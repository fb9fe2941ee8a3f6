/** The set of open exchanges, in any order of their beginnings and ends. */
// runtimes: once
import { describe, it } from "@std/testing/bdd";
import assert from "node:assert/strict";
import fc from "fast-check";
import { systemClock } from "../../src/exchange/clock.ts";
import type { Exchange } from "../../src/exchange/exchange.ts";
import { ExchangeSlots, OpenExchanges } from "../../src/exchange/open_exchanges.ts";

const request = { method: "GET", url: "/", headers: new Headers(), body: null };
const begin = (open: OpenExchanges) => open.begin(request, { clock: systemClock, observers: [] });

describe("open exchanges", () => {
  it("have begun and are not settled, in any order", () => {
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

  it("leave room for each new key, however many one key has, and never all belong to one provider", () => {
    const act = fc.record({
      key: fc.constantFrom("a", "b", "c"),
      provider: fc.constantFrom("p", "q"),
      end: fc.nat(9),
    });
    fc.assert(fc.property(fc.array(act, { maxLength: 120 }), (acts) => {
      const slots = 20;
      const open = new OpenExchanges(new ExchangeSlots(slots));
      const shares = new Map<Exchange, string[]>();
      for (const { key, provider, end } of acts) {
        const [ending] = Array.from(shares.keys()).slice(end);
        if (ending !== undefined) {
          ending.settle({ outcome: "ok" });
          shares.delete(ending);
        }
        const exchange = begin(open);
        const owners = [`key ${key}`, `provider ${provider}`];
        const heldBy = (owner: string) =>
          Array.from(shares.values()).filter((names) => names.includes(owner)).length;
        const held = owners.map(heldBy);
        const isFull = open.slots.isOverfull;
        try {
          open.takeSlots(exchange, key, provider);
          shares.set(exchange, owners);
          const free = slots - shares.size;
          const [ofKey = 0, ofProvider = 0] = held;
          assert.ok(ofKey === 0 || ofKey + 1 <= 4 * free, `${ofKey} of ${slots}`);
          assert.ok(ofProvider === 0 || ofProvider + 1 <= 9 * free, `${ofProvider} of ${slots}`);
        } catch (error) {
          assert.ok(isFull || held.some((count) => count > 0), `refused with ${held}: ${error}`);
          exchange.settle({ outcome: "shed" });
        }
        assert.equal(open.size, shares.size);
      }
      for (const exchange of open) exchange.settle({ outcome: "ok" });
    }));
  });

  it("keep their place while their stored answer is read", () => {
    const open = new OpenExchanges(new ExchangeSlots(5));
    const held = begin(open);
    open.takeSlots(held, "a");
    const letGo = open.keepOpen(held, () => {});
    held.settle({ outcome: "ok" });
    const others = Array.from({ length: 4 }, () => begin(open));
    assert.deepEqual([open.slots.isOverfull, open.size], [false, 4]);
    const last = begin(open);
    assert.equal(open.slots.isOverfull, true);
    letGo();
    letGo();
    assert.equal(open.slots.isOverfull, false);
    for (const exchange of [...others, last]) exchange.settle({ outcome: "ok" });
  });

  it("can be settled during an iteration", async () => {
    const open = new OpenExchanges();
    for (let count = 0; count < 5; count++) begin(open);
    const empty = open.whenEmpty();
    for (const exchange of open) exchange.settle({ outcome: "ok" });
    assert.equal(open.size, 0);
    await empty;
  });
});
