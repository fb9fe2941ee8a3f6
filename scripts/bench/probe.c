/*
 * The caller for what wrk can't measure. Prints one line of JSON; times are microseconds.
 *
 *   probe latency PORT SECONDS REQUEST_FILE [EXPECTED_FILE]
 *   probe streams PORT SECONDS REQUEST_FILE STREAMS EVENTS_A_SECOND
 *
 * REQUEST_FILE holds a whole HTTP request. `latency` sends it again and again over one connection: time to the first
 * byte of the body, and to the last. The body must be what EXPECTED_FILE holds; without one it must end as a stream or
 * as JSON does. `streams` opens so many streams at an even pace within RAMP_SECONDS, and, once all run, takes the time
 * from an event's "t" (when the provider sent it, CLOCK_MONOTONIC in nanoseconds) to its arrival. A stream that ends
 * before its time, or that brings less than EVENTS_A_SECOND, is wrong.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 16384, READ_BYTES = 262144, END_BYTES = 8, LINE_BYTES = 1024, RAMP_SECONDS = 2, SETTLE_SECONDS = 1 };
enum { MAX_STREAMS = 20000, LOST_SECONDS = 10 };

/* How the body is framed, and where in a chunk the parser stands. */
typedef enum { IN_HEAD, IN_LENGTH, IN_SIZE, IN_CHUNK, AFTER_CHUNK, IN_TRAILER, UNTIL_CLOSE, AT_END, BROKEN } State;

typedef struct {
  int fd;
  State state;
  int status;
  size_t head_length, line_length, end_length, events;
  uint64_t left, body_length, first_byte_at;
  bool is_same; /* so far the body is what was expected */
  char head[HEAD_BYTES + 1], line[LINE_BYTES + 1], end[END_BYTES + 1];
} Answer;

static const char *expected;
static size_t expected_length;
static uint64_t *samples;
static size_t sample_count, sample_room;
static bool is_measuring;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void fail(const char *why) {
  fprintf(stderr, "probe: %s: %s\n", why, strerror(errno));
  exit(2);
}

static char *read_file(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) fail("cannot read a file");
  fseek(file, 0, SEEK_END);
  *length = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*length + 1);
  if (fread(bytes, 1, *length, file) != *length) fail("cannot read a file");
  fclose(file);
  return bytes;
}

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

/* A whole line of a stream: an event that tells when it was sent is a sample. */
static void take_line(Answer *answer) {
  answer->line[answer->line_length] = '\0';
  answer->line_length = 0;
  if (strncmp(answer->line, "data: {", 7) != 0) return;
  if (is_measuring) answer->events++;
  const char *at = strstr(answer->line, "\"t\":");
  if (at != NULL && is_measuring) keep_sample(now() - strtoull(at + 4, NULL, 10));
}

static void take_body(Answer *answer, const char *bytes, size_t length) {
  if (answer->first_byte_at == 0) answer->first_byte_at = now();
  uint64_t offset = answer->body_length;
  answer->body_length += length;
  if (expected != NULL) {
    answer->is_same = answer->is_same && answer->body_length <= expected_length && memcmp(expected + offset, bytes, length) == 0;
    return;
  }
  for (size_t index = 0; index < length; index++) {
    if (bytes[index] == '\n') take_line(answer);
    else if (answer->line_length < LINE_BYTES) answer->line[answer->line_length++] = bytes[index];
  }
  size_t kept = length < END_BYTES ? length : END_BYTES, old = END_BYTES - kept;
  if (old > answer->end_length) old = answer->end_length;
  memmove(answer->end, answer->end + answer->end_length - old, old);
  memcpy(answer->end + old, bytes + length - kept, kept);
  answer->end_length = old + kept;
}

static void read_head(Answer *answer) {
  answer->status = strncmp(answer->head, "HTTP/1.1 ", 9) == 0 ? atoi(answer->head + 9) : 0;
  const char *length = strcasestr(answer->head, "\ncontent-length:");
  if (strcasestr(answer->head, "\ntransfer-encoding: chunked") != NULL) answer->state = IN_SIZE;
  else if (length == NULL) answer->state = UNTIL_CLOSE;
  else answer->state = (answer->left = strtoull(length + 16, NULL, 10)) == 0 ? AT_END : IN_LENGTH;
  answer->head_length = 0; /* from here on it holds the line of a chunk's size */
}

/* Collects bytes up to a line feed in `head`; returns whether the line is whole. */
static bool collect(Answer *answer, char byte) {
  if (answer->head_length == HEAD_BYTES) return answer->state = BROKEN, false;
  answer->head[answer->head_length++] = byte;
  if (byte != '\n') return false;
  answer->head[answer->head_length] = '\0';
  return true;
}

/* One byte of what frames the body. */
static void take_framing(Answer *answer, char byte) {
  if (!collect(answer, byte)) return;
  const bool is_empty = answer->head_length <= 2;
  if (answer->state == IN_HEAD) {
    if (answer->head_length >= 4 && strcmp(answer->head + answer->head_length - 4, "\r\n\r\n") == 0) read_head(answer);
    return;
  }
  if (answer->state == IN_SIZE) {
    answer->left = strtoull(answer->head, NULL, 16);
    answer->state = answer->left > 0 ? IN_CHUNK : IN_TRAILER;
  } else if (answer->state == AFTER_CHUNK) answer->state = is_empty ? IN_SIZE : BROKEN;
  else if (is_empty) answer->state = AT_END;
  answer->head_length = 0;
}

static void feed(Answer *answer, const char *bytes, size_t length) {
  for (size_t at = 0; at < length;) {
    if (answer->state == AT_END || answer->state == BROKEN) {
      answer->state = BROKEN; /* bytes after the end */
      return;
    }
    if (answer->state != IN_LENGTH && answer->state != IN_CHUNK && answer->state != UNTIL_CLOSE) {
      take_framing(answer, bytes[at++]);
      continue;
    }
    size_t part = length - at;
    if (answer->state != UNTIL_CLOSE && part > answer->left) part = answer->left;
    take_body(answer, bytes + at, part);
    at += part;
    if (answer->state == UNTIL_CLOSE || (answer->left -= part) > 0) continue;
    answer->state = answer->state == IN_LENGTH ? AT_END : AFTER_CHUNK;
  }
}

static bool is_right(const Answer *answer) {
  if (answer->state != AT_END || answer->status != 200) return false;
  if (expected != NULL) return answer->is_same && answer->body_length == expected_length;
  return (answer->end_length >= 8 && memcmp(answer->end + answer->end_length - 8, "[DONE]\n\n", 8) == 0) ||
         (answer->end_length > 0 && answer->end[answer->end_length - 1] == '}');
}

static void reset(Answer *answer) {
  answer->state = IN_HEAD;
  answer->is_same = true;
  answer->head_length = answer->line_length = answer->end_length = 0;
  answer->body_length = answer->first_byte_at = 0;
}

static int open_connection(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  struct timeval lost = {.tv_sec = LOST_SECONDS};
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &lost, sizeof lost);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("cannot connect");
  return fd;
}

static char buffer[READ_BYTES];

/* Sends the whole request; the other side reads it, or the receive below says so. */
static void send_request(int fd, const char *request, size_t length) {
  for (size_t sent = 0; sent < length;) {
    ssize_t part = send(fd, request + sent, length - sent, MSG_NOSIGNAL);
    if (part <= 0) return;
    sent += (size_t)part;
  }
}

static int measure_latency(int port, double seconds, const char *request, size_t length) {
  static Answer answer;
  uint64_t *firsts = NULL;
  size_t count = 0, wrong = 0, room = 0;
  answer.fd = open_connection(port);
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
      answer.fd = open_connection(port);
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

/* Reads what streams bring until `until`. */
static void listen_until(int poller, Answer **answers, uint64_t until) {
  struct epoll_event ready[256];
  while (true) {
    uint64_t time = now();
    if (time >= until) return;
    struct timespec wait = {.tv_sec = (time_t)((until - time) / 1000000000u), .tv_nsec = (long)((until - time) % 1000000000u)};
    int found = epoll_pwait2(poller, ready, 256, &wait, NULL);
    for (int index = 0; index < found; index++) {
      Answer *answer = answers[ready[index].data.u32];
      ssize_t got = recv(answer->fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) feed(answer, buffer, (size_t)got);
      else if (got == 0 || errno != EAGAIN) {
        answer->state = BROKEN;
        epoll_ctl(poller, EPOLL_CTL_DEL, answer->fd, NULL);
      }
    }
  }
}

static int measure_streams(int port, double seconds, const char *request, size_t length, size_t count, double rate) {
  static Answer *answers[MAX_STREAMS];
  if (count > MAX_STREAMS) fail("too many streams");
  int poller = epoll_create1(EPOLL_CLOEXEC);
  uint64_t started = now();
  for (size_t index = 0; index < count; index++) {
    Answer *answer = answers[index] = calloc(1, sizeof *answer);
    reset(answer);
    answer->fd = open_connection(port);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)index};
    epoll_ctl(poller, EPOLL_CTL_ADD, answer->fd, &event);
    send_request(answer->fd, request, length);
    listen_until(poller, answers, started + RAMP_SECONDS * 1000000000ull * (index + 1) / count);
  }
  listen_until(poller, answers, now() + SETTLE_SECONDS * 1000000000ull);
  is_measuring = true;
  listen_until(poller, answers, now() + (uint64_t)(seconds * 1e9));
  is_measuring = false;
  size_t wrong = 0;
  for (size_t index = 0; index < count; index++) {
    const Answer *answer = answers[index];
    bool is_open = answer->state != BROKEN && answer->state != AT_END && answer->status == 200;
    if (!is_open || (double)answer->events < rate * seconds * 0.9 - 1) wrong++;
    close(answer->fd);
  }
  qsort(samples, sample_count, sizeof *samples, compare);
  printf("{\"events\":%zu,\"wrong\":%zu,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}\n", sample_count, wrong,
         percentile(samples, sample_count, 0.5), percentile(samples, sample_count, 0.99), percentile(samples, sample_count, 0.999),
         percentile(samples, sample_count, 1));
  return 0;
}

int main(int count, char **arguments) {
  if (count < 5) return fprintf(stderr, "usage: probe latency|streams PORT SECONDS REQUEST_FILE ...\n"), 2;
  size_t length;
  int port = atoi(arguments[2]);
  double seconds = atof(arguments[3]);
  char *request = read_file(arguments[4], &length);
  if (strcmp(arguments[1], "streams") == 0 && count == 7)
    return measure_streams(port, seconds, request, length, (size_t)atol(arguments[5]), atof(arguments[6]));
  if (count > 5) expected = read_file(arguments[5], &expected_length);
  return measure_latency(port, seconds, request, length);
}
