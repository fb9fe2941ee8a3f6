/*
 * The caller that measures latency. Prints one line of JSON; times are microseconds.
 *
 *   probe PORT SECONDS REQUEST_FILE EXPECTED_FILE|- [AUTHORITY_FILE]
 *
 * REQUEST_FILE contains a whole HTTP request. It is sent repeatedly over one connection, and the time to the first byte
 * of the body and to the last is measured. The body must equal EXPECTED_FILE; without that file it must end as a stream
 * or as JSON does. With AUTHORITY_FILE the connection uses TLS, and the certificate must be of that authority.
 */
#include "answer.h"
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>

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

static SSL_CTX *tls_context;
static SSL *tls; /* NULL without TLS */

static void prepare_tls(const char *authority) {
  tls_context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_verify(tls_context, SSL_VERIFY_PEER, NULL);
  if (SSL_CTX_load_verify_locations(tls_context, authority, NULL) == 1) return;
  ERR_print_errors_fp(stderr);
  exit(2);
}

static int dial(int port) {
  int fd = open_connection(port, 0);
  if (tls_context == NULL) return fd;
  SSL_free(tls);
  tls = SSL_new(tls_context);
  SSL_set_tlsext_host_name(tls, "localhost");
  SSL_set_fd(tls, fd);
  if (SSL_connect(tls) == 1) return fd;
  ERR_print_errors_fp(stderr);
  exit(2);
}

static void send_all(int fd, const char *request, size_t length) {
  if (tls == NULL) send_request(fd, request, length);
  else SSL_write(tls, request, (int)length); /* the whole, because the socket blocks */
}

static ssize_t receive(int fd) {
  return tls == NULL ? recv(fd, buffer, sizeof buffer, 0) : SSL_read(tls, buffer, sizeof buffer);
}

static int measure_latency(int port, double seconds, const char *request, size_t length) {
  static Answer answer;
  uint64_t *firsts = NULL;
  size_t count = 0, wrong = 0, room = 0;
  answer.fd = dial(port);
  for (uint64_t end = now() + (uint64_t)(seconds * 1e9); now() < end;) {
    reset(&answer);
    uint64_t started = now();
    send_all(answer.fd, request, length);
    while (answer.state != AT_END && answer.state != BROKEN) {
      ssize_t got = receive(answer.fd);
      if (got > 0) feed(&answer, buffer, (size_t)got);
      else answer.state = got == 0 && answer.state == UNTIL_CLOSE ? AT_END : BROKEN;
    }
    uint64_t ended = now();
    if (!is_right(&answer)) wrong++;
    if (answer.state == BROKEN) {
      close(answer.fd);
      answer.fd = dial(port);
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
  if (count < 5) return fprintf(stderr, "usage: probe PORT SECONDS REQUEST_FILE EXPECTED_FILE|- [AUTHORITY_FILE]\n"), 2;
  signal(SIGPIPE, SIG_IGN); /* SSL_write has no MSG_NOSIGNAL */
  size_t length;
  char *request = read_file(arguments[3], &length);
  if (count > 5) prepare_tls(arguments[5]);
  if (strcmp(arguments[4], "-") != 0) expected = read_file(arguments[4], &expected_length);
  return measure_latency(atoi(arguments[1]), atof(arguments[2]), request, length);
}
