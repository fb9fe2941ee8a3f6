/*
 * A stand-in provider that is much faster than the proxies in front of it: one thread, epoll, answers made once.
 *
 *   provider PORT [EVENTS] [INTERVAL_US]
 *
 * POST /v1/chat/completions answers about 300 bytes of JSON with its usage. If the body contains "stream":true, it
 * answers EVENTS server-sent events (20), each in a separate chunk, and [DONE]. Without an interval they are sent in one
 * write. With an interval, each event is sent at its time, and contains that time, CLOCK_MONOTONIC in nanoseconds, as
 * "t". The pace does not depend on the receiver (an open model). Each stream has an offset in the interval, in the same
 * order in each run: otherwise all streams would send at once, or runs would differ. A body can set other values for its
 * stream: "user":"events=5 interval_us=1000". With "step_us=500" events are sent at whole steps, and all events that are
 * due by then are sent together. Any GET answers a list of models. Only the first LOOK_BYTES of a body are inspected; the
 * rest is read and discarded. A call without Authorization gets a 401, and a call with Gateway-Auth a 400: both mean that
 * the proxy in front is wrong.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FDS = 1 << 19, ADDRESSES = 8, HEAD_BYTES = 16384, LOOK_BYTES = 1024, MAX_BODY_BYTES = 1 << 26 };
enum { MAX_EVENTS = 1000, ANSWER_BYTES = MAX_EVENTS * 256 + 1024 };

typedef struct Connection {
  int fd;
  size_t length;      /* bytes in `input`; further bytes are discarded */
  size_t head_length; /* with its empty line; 0 until it has arrived */
  size_t missing;     /* bytes of the request that have not arrived */
  const char *out;
  size_t out_left;
  /* A paced stream, in a list sorted by `due`: all intervals of a run are equal. */
  long events_left;
  uint64_t interval, due;
  struct Connection *next, *previous;
  bool is_closing;
  char input[HEAD_BYTES + 1];
} Connection;

static Connection *connections[MAX_FDS];
static Connection *first_due, *last_due;
static uint64_t paced_count; /* streams opened since the last time that none was open */
static int poller;
static long default_events = 20, default_interval_us;
static char plain[1024], models[512], refused[256], unwanted[256], *stream_answer[MAX_EVENTS + 1];
static size_t plain_length, models_length, refused_length, unwanted_length, stream_length[MAX_EVENTS + 1];

static const char STREAM_HEAD[] =
  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char DONE[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static size_t make_answer(char *to, size_t room, const char *status, const char *body) {
  return (size_t)snprintf(to, room, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", status,
                          strlen(body), body);
}

/* One event as a chunk; `time` 0 leaves the field out. The last event has the finish reason. */
static size_t make_event(char *to, bool is_last, uint64_t time) {
  char stamp[32] = "", event[256];
  if (time != 0) snprintf(stamp, sizeof stamp, ",\"t\":%llu", (unsigned long long)time);
  int length = snprintf(event, sizeof event,
                        "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"stand-in\","
                        "\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]%s}\n\n",
                        is_last ? "" : "\"content\":\" word\"", is_last ? "\"stop\"" : "null", stamp);
  return (size_t)sprintf(to, "%x\r\n%s\r\n", (unsigned)length, event);
}

static void make_answers(void) {
  plain_length = make_answer(plain, sizeof plain, "200 OK",
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"stand-in\",\"choices\":[{\"index\":0,"
    "\"message\":{\"role\":\"assistant\",\"content\":\"Hello! How can I help you today?\"},\"finish_reason\":\"stop\"}],"
    "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9,\"total_tokens\":18}}");
  models_length = make_answer(models, sizeof models, "200 OK",
    "{\"object\":\"list\",\"data\":[{\"id\":\"stand-in\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"bench\"}]}");
  refused_length = make_answer(refused, sizeof refused, "401 Unauthorized", "{\"error\":{\"message\":\"no key\"}}");
  unwanted_length = make_answer(unwanted, sizeof unwanted, "400 Bad Request", "{\"error\":{\"message\":\"not for me\"}}");
}

/* A whole stream without an interval, made for the first request. */
static const char *stream_of(long events) {
  if (stream_answer[events] == NULL) {
    char *to = stream_answer[events] = malloc(ANSWER_BYTES);
    size_t length = sizeof STREAM_HEAD - 1;
    memcpy(to, STREAM_HEAD, length);
    for (long index = 1; index <= events; index++) length += make_event(to + length, index == events, 0);
    memcpy(to + length, DONE, sizeof DONE - 1);
    stream_length[events] = length + sizeof DONE - 1;
  }
  return stream_answer[events];
}

static void unlink_due(Connection *each) {
  if (each->due == 0) return;
  *(each->previous ? &each->previous->next : &first_due) = each->next;
  *(each->next ? &each->next->previous : &last_due) = each->previous;
  each->due = 0;
}

static void link_due(Connection *each, uint64_t due) {
  Connection *after = last_due;
  while (after != NULL && after->due > due) after = after->previous;
  each->due = due;
  each->previous = after;
  each->next = after ? after->next : first_due;
  *(after ? &after->next : &first_due) = each;
  *(each->next ? &each->next->previous : &last_due) = each;
}

static void drop(Connection *each) {
  unlink_due(each);
  connections[each->fd] = NULL;
  close(each->fd);
  free(each);
}

/* Sends as much as possible, and the rest when there is room. */
static void send_out(Connection *each, const char *bytes, size_t length) {
  ssize_t sent = send(each->fd, bytes, length, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) return drop(each);
  if (sent < 0) sent = 0;
  if ((size_t)sent < length) {
    each->out = bytes + sent;
    each->out_left = length - (size_t)sent;
    struct epoll_event event = {.events = EPOLLOUT, .data.fd = each->fd};
    epoll_ctl(poller, EPOLL_CTL_MOD, each->fd, &event);
  } else if (each->is_closing) {
    drop(each);
  }
}

/* Sends the next event of a paced stream, and the header before the first. Drops a caller that does not read. */
static void send_event(Connection *each, bool is_first, uint64_t due) {
  char bytes[1024];
  size_t length = 0;
  if (is_first) memcpy(bytes, STREAM_HEAD, length = sizeof STREAM_HEAD - 1);
  bool is_last = --each->events_left == 0;
  length += make_event(bytes + length, is_last, now());
  if (is_last) {
    memcpy(bytes + length, DONE, sizeof DONE - 1);
    length += sizeof DONE - 1;
  }
  if (send(each->fd, bytes, length, MSG_NOSIGNAL) != (ssize_t)length) return drop(each);
  if (!is_last) link_due(each, due + each->interval);
}

/* The offset of a new stream in the interval: even over many streams, unordered, and the same in each run. */
static uint64_t next_place(uint64_t interval) {
  paced_count = first_due == NULL ? 0 : paced_count + 1;
  uint64_t mixed = (paced_count + 1) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  return (mixed ^ (mixed >> 27)) % interval;
}

static long option_of(const char *body, size_t length, const char *name, long fallback) {
  const char *at = memmem(body, length, name, strlen(name));
  return at == NULL ? fallback : atol(at + strlen(name));
}

static size_t content_length(const char *head) {
  const char *at = strcasestr(head, "\ncontent-length:");
  return at == NULL ? 0 : (size_t)atol(at + 16);
}

/* Answers the request in `input`. The connection can be closed afterwards. */
static void answer(Connection *each) {
  char *head = each->input, *body = head + each->head_length;
  size_t looked = each->length - each->head_length < LOOK_BYTES ? each->length - each->head_length : LOOK_BYTES;
  char first = *body;
  *body = '\0'; /* strcasestr stops there */
  bool is_get = memcmp(head, "GET ", 4) == 0, has_key = strcasestr(head, "\nauthorization: ") != NULL;
  bool is_unwanted = strcasestr(head, "\ngateway-auth:") != NULL;
  each->is_closing = strcasestr(head, "\nconnection: close") != NULL;
  *body = first;
  each->length = each->head_length = 0;
  if (!has_key) return send_out(each, refused, refused_length);
  if (is_unwanted) return send_out(each, unwanted, unwanted_length);
  if (is_get) return send_out(each, models, models_length);
  if (memmem(body, looked, "\"stream\":true", 13) == NULL) return send_out(each, plain, plain_length);
  long events = option_of(body, looked, "events=", default_events);
  each->interval = 1000u * (uint64_t)option_of(body, looked, "interval_us=", default_interval_us);
  if (events < 1) events = 1;
  if (each->interval == 0) {
    if (events > MAX_EVENTS) events = MAX_EVENTS;
    const char *whole = stream_of(events);
    return send_out(each, whole, stream_length[events]);
  }
  each->events_left = events;
  uint64_t from = now() - each->interval + next_place(each->interval);
  uint64_t step = 1000u * (uint64_t)option_of(body, looked, "step_us=", 0);
  send_event(each, true, step == 0 ? from : from - from % step);
}

/* Reads available bytes and answers a complete request. One request at a time: none of the proxies pipelines. */
static void take(Connection *each) {
  static char sink[262144];
  size_t room = HEAD_BYTES - each->length;
  bool is_kept = room > 0;
  ssize_t got = is_kept ? recv(each->fd, each->input + each->length, room, 0) : recv(each->fd, sink, sizeof sink, 0);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) return drop(each);
  if (is_kept) each->length += (size_t)got;
  each->input[each->length] = '\0';
  if (each->head_length == 0) {
    char *end = memmem(each->input, each->length, "\r\n\r\n", 4);
    if (end == NULL) return is_kept ? (void)0 : drop(each);
    each->head_length = (size_t)(end - each->input) + 4;
    each->missing = each->head_length + content_length(each->input) - each->length;
  } else {
    each->missing -= (size_t)got;
  }
  if (each->missing > MAX_BODY_BYTES) return drop(each); /* also if it exceeds the announced length */
  if (each->missing == 0) answer(each);
}

static void flush(Connection *each) {
  struct epoll_event event = {.events = EPOLLIN, .data.fd = each->fd};
  epoll_ctl(poller, EPOLL_CTL_MOD, each->fd, &event);
  send_out(each, each->out, each->out_left);
}

static void accept_all(int listener) {
  int fd;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Connection *each = fd < MAX_FDS ? calloc(1, sizeof *each) : NULL;
    if (each == NULL) {
      close(fd);
      continue;
    }
    each->fd = fd;
    connections[fd] = each;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  }
}

/* Listens on 127.0.0.1 and the next addresses: a proxy has only about 28,000 ports for calls to each of them. */
static int open_listener(int port, uint32_t place) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK + place)};
  if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 4096) != 0) {
    perror("provider: cannot listen");
    exit(2);
  }
  return fd;
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  if (count < 2) return fprintf(stderr, "usage: provider PORT [EVENTS] [INTERVAL_US]\n"), 2;
  if (count > 2) default_events = atol(arguments[2]);
  if (count > 3) default_interval_us = atol(arguments[3]);
  make_answers();
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  poller = epoll_create1(EPOLL_CLOEXEC);
  int last_listener = 0;
  for (uint32_t place = 0; place < ADDRESSES; place++) {
    last_listener = open_listener(atoi(arguments[1]), place);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = last_listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, last_listener, &event);
  }
  struct epoll_event ready[256];
  while (true) {
    struct timespec wait = {0, 0};
    if (first_due != NULL) {
      uint64_t time = now(), left = first_due->due > time ? first_due->due - time : 0;
      wait = (struct timespec){.tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u)};
    }
    int found = epoll_pwait2(poller, ready, 256, first_due ? &wait : NULL, NULL);
    for (int index = 0; index < found; index++) {
      int fd = ready[index].data.fd;
      if (fd <= last_listener && connections[fd] == NULL) accept_all(fd);
      else if (connections[fd] == NULL) continue;
      else if (ready[index].events & EPOLLOUT) flush(connections[fd]);
      else take(connections[fd]);
    }
    while (first_due != NULL && first_due->due <= now()) {
      Connection *each = first_due;
      uint64_t due = each->due;
      unlink_due(each);
      send_event(each, false, due);
    }
  }
}
