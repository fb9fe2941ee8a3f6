/*
 * The shared code of the callers in C: time, files, connections, and a parser of HTTP/1.1 answers that passes the body
 * to `take_body`, which the including file defines.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096, END_BYTES = 8, LINE_BYTES = 512, LOST_SECONDS = 10 };

/* The framing of the body, and the parser's position in a chunk. */
typedef enum { IN_HEAD, IN_LENGTH, IN_SIZE, IN_CHUNK, AFTER_CHUNK, IN_TRAILER, UNTIL_CLOSE, AT_END, BROKEN } State;

typedef struct {
  int fd;
  State state;
  int status;
  size_t head_length, line_length, end_length;
  uint64_t left, body_length, first_byte_at, events;
  bool is_same; /* true while the body is as expected */
  char head[HEAD_BYTES + 1], line[LINE_BYTES + 1], end[END_BYTES + 1];
} Answer;

/* Receives bytes of the body, without framing. */
static void take_body(Answer *answer, const char *bytes, size_t length);

static inline uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline void fail(const char *why) {
  fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, why, strerror(errno));
  exit(2);
}

static inline char *read_file(const char *path, size_t *length) {
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

static inline void read_head(Answer *answer) {
  answer->status = strncmp(answer->head, "HTTP/1.1 ", 9) == 0 ? atoi(answer->head + 9) : 0;
  const char *length = strcasestr(answer->head, "\ncontent-length:");
  if (strcasestr(answer->head, "\ntransfer-encoding: chunked") != NULL) answer->state = IN_SIZE;
  else if (length == NULL) answer->state = UNTIL_CLOSE;
  else answer->state = (answer->left = strtoull(length + 16, NULL, 10)) == 0 ? AT_END : IN_LENGTH;
  answer->head_length = 0; /* from here on it contains the line with a chunk's size */
}

/* Collects bytes up to a line feed in `head`; returns true if the line is complete. */
static inline bool collect(Answer *answer, char byte) {
  if (answer->head_length == HEAD_BYTES) return answer->state = BROKEN, false;
  answer->head[answer->head_length++] = byte;
  if (byte != '\n') return false;
  answer->head[answer->head_length] = '\0';
  return true;
}

/* Handles one byte of the framing. */
static inline void take_framing(Answer *answer, char byte) {
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

static inline void feed(Answer *answer, const char *bytes, size_t length) {
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

static inline void reset(Answer *answer) {
  answer->state = IN_HEAD;
  answer->is_same = true;
  answer->head_length = answer->line_length = answer->end_length = 0;
  answer->body_length = answer->first_byte_at = 0;
}

/* Connects from `source` in host byte order, or from any address if it is 0. */
static inline int open_connection(int port, uint32_t source) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  struct timeval lost = {.tv_sec = LOST_SECONDS};
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(source)};
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &lost, sizeof lost);
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  if (source != 0 && bind(fd, (struct sockaddr *)&from, sizeof from) != 0) fail("cannot bind a source address");
  if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) fail("cannot connect");
  return fd;
}

/* Sends the whole request. If the other side does not read it, the following receive reports that. */
static inline void send_request(int fd, const char *request, size_t length) {
  for (size_t sent = 0; sent < length;) {
    ssize_t part = send(fd, request + sent, length - sent, MSG_NOSIGNAL);
    if (part <= 0) return;
    sent += (size_t)part;
  }
}
