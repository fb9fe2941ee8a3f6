/*
 * The caller that measures latency. Prints one line of JSON; times are microseconds.
 *
 *   probe PORT SECONDS REQUEST_FILE [EXPECTED_FILE]
 *
 * REQUEST_FILE contains a whole HTTP request. It is sent repeatedly over one connection, and the time to the first byte
 * of the body and to the last is measured. The body must equal EXPECTED_FILE; without that file it must end as a stream
 * or as JSON does.
 */
#include "answer.h"

enum { READ_BYTES = 262144 };

static const char *expected;
static size_t expected_length;
static uint64_t *samples;
static size_t sample_count, sample_room;

static void keep_sample(uint64_t value) {
  if (sample_count == sample_room) samples = realloc(samples, (sample_room = sample_room * 2 + 65536) * sizeof *samples);
  samples[sample_count++] = value;
}

static int compare(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

static double percentile(uint64_t *values, size_t count, double part) {
  if (count == 0) return 0;
  size_t index = (size_t)(part * (double)count);
  return (double)values[index < count ? index : count - 1] / 1000.0;
}

static void take_body(Answer *answer, const char *bytes, size_t length) {
  if (answer->first_byte_at == 0) answer->first_byte_at = now();
  uint64_t offset = answer->body_length;
  answer->body_length += length;
  if (expected != NULL) {
    answer->is_same = answer->is_same && answer->body_length <= expected_length && memcmp(expected + offset, bytes, length) == 0;
    return;
  }
  size_t kept = length < END_BYTES ? length : END_BYTES, old = END_BYTES - kept;
  if (old > answer->end_length) old = answer->end_length;
  memmove(answer->end, answer->end + answer->end_length - old, old);
  memcpy(answer->end + old, bytes + length - kept, kept);
  answer->end_length = old + kept;
}

static bool is_right(const Answer *answer) {
  if (answer->state != AT_END || answer->status != 200) return false;
  if (expected != NULL) return answer->is_same && answer->body_length == expected_length;
  return (answer->end_length >= 8 && memcmp(answer->end + answer->end_length - 8, "[DONE]\n\n", 8) == 0) ||
         (answer->end_length > 0 && answer->end[answer->end_length - 1] == '}');
}

static char buffer[READ_BYTES];

static int measure_latency(int port, double seconds, const char *request, size_t length) {
  static Answer answer;
  uint64_t *firsts = NULL;
  size_t count = 0, wrong = 0, room = 0;
  answer.fd = open_connection(port, 0);
  for (uint64_t end = now() + (uint64_t)(seconds * 1e9); now() < end;) {
    reset(&answer);
    uint64_t started = now();
    send_request(answer.fd, request, length);
    while (answer.state != AT_END && answer.state != BROKEN) {
      ssize_t got = recv(answer.fd, buffer, sizeof buffer, 0);
      if (got > 0) feed(&answer, buffer, (size_t)got);
      else answer.state = got == 0 && answer.state == UNTIL_CLOSE ? AT_END : BROKEN;
    }
    uint64_t ended = now();
    if (!is_right(&answer)) wrong++;
    if (answer.state == BROKEN) {
      close(answer.fd);
      answer.fd = open_connection(port, 0);
      continue;
    }
    if (count == room) firsts = realloc(firsts, (room = room * 2 + 65536) * sizeof *firsts);
    firsts[count++] = answer.first_byte_at - started;
    keep_sample(ended - started);
  }
  qsort(samples, sample_count, sizeof *samples, compare);
  qsort(firsts, count, sizeof *firsts, compare);
  printf("{\"requests\":%zu,\"wrong\":%zu,\"p50\":%.1f,\"p99\":%.1f,\"firstP50\":%.1f,\"firstP99\":%.1f}\n", count, wrong,
         percentile(samples, sample_count, 0.5), percentile(samples, sample_count, 0.99), percentile(firsts, count, 0.5),
         percentile(firsts, count, 0.99));
  return 0;
}

int main(int count, char **arguments) {
  if (count < 4) return fprintf(stderr, "usage: probe PORT SECONDS REQUEST_FILE [EXPECTED_FILE]\n"), 2;
  size_t length;
  char *request = read_file(arguments[3], &length);
  if (count > 4) expected = read_file(arguments[4], &expected_length);
  return measure_latency(atoi(arguments[1]), atof(arguments[2]), request, length);
}
