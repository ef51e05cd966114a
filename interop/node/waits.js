'use strict';

// Waits, each with a deadline, and names.

const assert = require('node:assert/strict');

const [, , , BOOTSTRAP, NAME] = process.argv;

// Generous: only a bug reaches it.
const PATIENCE_MS = 30000;
// Long enough for a message that must not come.
const SILENCE_MS = 500;

/** The result of a promise, or an error after `PATIENCE_MS`. */
function within(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${PATIENCE_MS} ms: ${what}`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `look` returns something. */
async function eventually(what, look) {
  const deadline = Date.now() + PATIENCE_MS;
  while (Date.now() < deadline) {
    const found = await within(what, look());
    if (found) return found;
    await pause(20);
  }
  throw new Error(`not within ${PATIENCE_MS} ms: ${what}`);
}

/** The result of a function whose last argument is a callback `(error, result)`. */
function called(what, call) {
  return within(what, new Promise((resolve, reject) => {
    call((error, result) => (error ? reject(error) : resolve(result)));
  }));
}

/** The next event of an emitter, with all arguments. */
function emitted(emitter, event) {
  return within(event, new Promise((resolve) => emitter.once(event, (...args) => resolve(args))));
}

/** Fails unless the promise is rejected with one of these codes. Returns the error. */
async function refused(what, promise, ...codes) {
  let result;
  try {
    result = await within(what, promise);
  } catch (error) {
    assert(codes.includes(error.code), `${what}: code ${error.code} is not one of ${codes}: ${error.stack}`);
    return error;
  }
  throw new assert.AssertionError({ message: `${what} succeeds: ${JSON.stringify(result)}` });
}

/** A unique name in the cluster. */
const own = (name) => `${NAME}-js-${name}`;

const range = (start, end) => Array.from({ length: end - start }, (_, n) => start + n);

module.exports = { BOOTSTRAP, PATIENCE_MS, SILENCE_MS, within, pause, eventually, called, emitted, refused, own, range };
