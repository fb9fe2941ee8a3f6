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

export type RoomName = "comments of src" | "messages" | "tests" | "scripts" | "pages";

/** The aim of each room: uses of forbidden phrases, and uses of others per 10,000 words. */
export const AIMS: Readonly<Record<PhraseName, number>> = {
  forbidden: 0,
  "what-clauses": 5,
  "that of": 5,
  gives: 20,
  may: 12,
  who: 10,
};

/** The most that each room has today. Lower a number when a room has fewer. */
export const LIMITS: Readonly<Record<RoomName, Readonly<Record<PhraseName, number>>>> = {
  "comments of src": {
    forbidden: 82,
    "what-clauses": 60.5,
    "that of": 23.6,
    gives: 77.5,
    may: 37.7,
    who: 10,
  },
  "messages": {
    forbidden: 49,
    "what-clauses": 37.1,
    "that of": 21.8,
    gives: 68.3,
    may: 19.3,
    who: 10,
  },
  "tests": {
    forbidden: 378,
    "what-clauses": 171.6,
    "that of": 16.9,
    gives: 136.1,
    may: 29.4,
    who: 10,
  },
  "scripts": {
    forbidden: 82,
    "what-clauses": 188.4,
    "that of": 20.6,
    gives: 116,
    may: 21.4,
    who: 10,
  },
  "pages": { forbidden: 168, "what-clauses": 76.4, "that of": 20, gives: 94.7, may: 23.7, who: 10 },
};
