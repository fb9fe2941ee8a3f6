/** The part of jsr:@std/testing/bdd that the tests use. */
interface Group {
  (name: string, fn: () => void): void;
  skip(name: string, fn: () => void): void;
}
interface Case {
  (name: string, fn: () => void | Promise<void>): void;
  skip(name: string, fn: () => void | Promise<void>): void;
}
export declare const describe: Group;
export declare const it: Case;
export declare function beforeAll(fn: () => void | Promise<void>): void;
export declare function afterAll(fn: () => void | Promise<void>): void;
export declare function beforeEach(fn: () => void | Promise<void>): void;
export declare function afterEach(fn: () => void | Promise<void>): void;
