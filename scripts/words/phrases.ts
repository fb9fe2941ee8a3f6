/** Phrases that make sentences hard to read, and how often they can be used. */

export type PhraseName = "forbidden" | "what-clauses" | "that of" | "gives" | "may" | "who";

/** Phrases to avoid. `forbidden` ones have a plain word that says the same. */
export const PHRASES: Readonly<Record<PhraseName, RegExp>> = {
  forbidden:
    /\b(?:anew|of late|for good|in vain|nobody|whoever|by which|beside|tells? of|told of|one that|those who|sees to it|(?:is|are) to be|at the pace of|of its own|all the same)\b/gi,
  // A clause as a noun: "what is left", and not "what?" or "say what to do".
  "what-clauses": /\bwhat(?:ever)?\b(?! to\b)(?![^.]*\?)/gi,
  "that of": /\bth(?:at|ose) (?:of|that|which)\b/gi,
  gives: /\b(?:gives?|takes?|holds?|comes?|goes|stands?)\b/gi,
  may: /\bmay\b/g,
  who: /\bwho\b/gi,
};

export type RoomName =
  | "comments of src"
  | "messages"
  | "tests"
  | "scripts"
  | "literals of tests"
  | "examples and ops"
  | "pages";

/** The most that a room can have: uses of forbidden phrases, and of others per 10,000 words. */
export const LIMITS: Readonly<Record<PhraseName, number>> = {
  forbidden: 0,
  "what-clauses": 5,
  "that of": 5,
  gives: 20,
  may: 12,
  who: 10,
};
