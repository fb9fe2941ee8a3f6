/**
 * The routes of credits at the admin API, with the schemas of their body and their answer.
 *
 * @module
 */
import * as v from "valibot";
import { parseCount, parseMoney } from "../../config/units.ts";
import type { Credit, Credits, CreditView } from "../credits.ts";
import { ReasonSchema } from "./changes.ts";
import { type AdminRoute, route } from "./route.ts";
import { count, objectOf, optional, text } from "./schema.ts";

const tokensForm = 'expected a number of tokens such as "100k"';
const moneyForm = 'expected money such as "5 USD"';

/** @internal The body of a credit. */
export const CreditSchema: v.GenericSchema<unknown, Credit> = v.pipe(
  v.strictObject({
    tokens: v.optional(v.pipe(
      v.string(tokensForm),
      v.transform(parseCount),
      v.number(tokensForm),
    )),
    money: v.optional(v.pipe(
      v.string(moneyForm),
      v.rawTransform(({ dataset, addIssue, NEVER }) => {
        const money = parseMoney(dataset.value);
        if (money !== undefined) return money;
        addIssue({ message: moneyForm });
        return NEVER;
      }),
    )),
    reason: v.pipe(ReasonSchema, v.description("The reason, for the audit")),
  }, "expected an object"),
  v.check(
    ({ tokens, money }) => tokens !== undefined || money !== undefined,
    "expected tokens, money or both",
  ),
);

const BODY = { name: "Credit", schema: CreditSchema };
const RESPONSE = {
  name: "CreditGiven",
  schema: objectOf<CreditView>({
    id: text("Id of the key, or name of the team"),
    tokens: optional(count()),
    money: optional(text("Such as 5 USD")),
    reason: text(),
  }),
};

/** The routes of credits. */
export const CREDIT_ROUTES: readonly AdminRoute<Credits>[] = [
  route({
    method: "post",
    path: "/v1/keys/{id}/credit",
    operationId: "creditKey",
    summary: "Give tokens or money back to the limits of a key, in their current periods",
    body: BODY,
    status: 200,
    response: RESPONSE,
    run: (credits, { id, body, operator }) => credits.toKey(id, body, operator.who),
  }),
  route({
    method: "post",
    path: "/v1/teams/{id}/credit",
    operationId: "creditTeam",
    summary: "Give tokens or money back to the limits of a team, in their current periods",
    body: BODY,
    status: 200,
    response: RESPONSE,
    run: (credits, { id, body, operator }) => credits.toTeam(id, body, operator.who),
  }),
];
