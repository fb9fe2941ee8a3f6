/*
 * A stand-in provider that is much faster than the proxies in front of it: one thread, epoll, answers made once.
 *
 *   provider PORT [TLS_PORT CERTIFICATE_FILE KEY_FILE]
 *
 * POST /v1/chat/completions answers about 300 bytes of JSON with its usage, or, with "user":"bytes=2000" in the body, a
 * text of that length. If the body contains "stream":true, it answers 20 server-sent events, each in a separate chunk,
 * and [DONE]. They are sent in one write. With "deltas=2000" they are parts of the arguments of a tool call. With an
 * interval, each event is sent at its time, and contains that time, CLOCK_MONOTONIC in nanoseconds, as
 * "t". The pace does not depend on the receiver (an open model). Each stream has an offset in the interval, in the same
 * order in each run: otherwise all streams would send at once, or runs would differ. A body sets the values of its
 * stream: "user":"events=5 interval_us=1000". With "step_us=500" events are sent at whole steps, and all events that are
 * due by then are sent together. Any GET answers a list of models. Only the first LOOK_BYTES of a body are inspected; the
 * rest is read and discarded. A call without Authorization gets a 401, and a call with Gateway-Auth a 400: both mean that
 * the proxy in front is wrong. On TLS_PORT the same is answered over TLS.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
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
enum { MAX_EVENTS = 2000, ANSWER_BYTES = MAX_EVENTS * 256 + 1024, MAX_TEXT_BYTES = 1 << 20, DEFAULT_EVENTS = 20 };

typedef struct Connection {
  int fd;
  SSL *tls;           /* NULL without TLS */
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
static SSL_CTX *tls_context;
static char *plain, models[512], refused[256], unwanted[256], *stream_answer[MAX_EVENTS + 1], *delta_answer[MAX_EVENTS + 1], *text_answer;
static size_t plain_length, models_length, refused_length, unwanted_length, stream_length[MAX_EVENTS + 1], delta_length[MAX_EVENTS + 1], text_length;
static long text_bytes;

static const char STREAM_HEAD[] =
  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char PLAIN[] =
  "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"stand-in\",\"choices\":[{\"index\":0,"
  "\"message\":{\"role\":\"assistant\",\"content\":\"%s\"},\"finish_reason\":\"stop\"}],"
  "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9,\"total_tokens\":18}}";
static const char WORD[] = "\"content\":\" word\"", DELTA[] = "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"a1\"}}]";
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
static size_t make_event(char *to, const char *content, bool is_last, uint64_t time) {
  char stamp[32] = "", event[256];
  if (time != 0) snprintf(stamp, sizeof stamp, ",\"t\":%llu", (unsigned long long)time);
  int length = snprintf(event, sizeof event,
                        "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"stand-in\","
                        "\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]%s}\n\n",
                        is_last ? "" : content, is_last ? "\"stop\"" : "null", stamp);
  return (size_t)sprintf(to, "%x\r\n%s\r\n", (unsigned)length, event);
}

/* A plain answer; the caller frees it. */
static char *make_plain(const char *text, size_t *length) {
  size_t room = sizeof PLAIN + strlen(text), head_room = 256;
  char *body = malloc(room), *to = malloc(room + head_room);
  snprintf(body, room, PLAIN, text);
  *length = make_answer(to, room + head_room, "200 OK", body);
  free(body);
  return to;
}

/* A plain answer with a text of this length. Only one length is kept. */
static const char *text_of(long bytes) {
  if (bytes != text_bytes) {
    char *text = malloc((size_t)bytes + 1);
    for (long index = 0; index < bytes; index++) text[index] = "lorem ipsum "[index % 12];
    text[bytes] = '\0';
    text_answer = make_plain(text, &text_length); /* the former one can still be on its way */
    free(text);
    text_bytes = bytes;
  }
  return text_answer;
}

static void make_answers(void) {
  plain = make_plain("Hello! How can I help you today?", &plain_length);
  models_length = make_answer(models, sizeof models, "200 OK",
    "{\"object\":\"list\",\"data\":[{\"id\":\"stand-in\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"bench\"}]}");
  refused_length = make_answer(refused, sizeof refused, "401 Unauthorized", "{\"error\":{\"message\":\"no key\"}}");
  unwanted_length = make_answer(unwanted, sizeof unwanted, "400 Bad Request", "{\"error\":{\"message\":\"not for me\"}}");
}

/* A whole stream without an interval, made for the first request. */
static const char *stream_of(long events, const char *content, char **answers, size_t *lengths) {
  if (answers[events] == NULL) {
    char *to = answers[events] = malloc(ANSWER_BYTES);
    size_t length = sizeof STREAM_HEAD - 1;
    memcpy(to, STREAM_HEAD, length);
    for (long index = 1; index <= events; index++) length += make_event(to + length, content, index == events, 0);
    memcpy(to + length, DONE, sizeof DONE - 1);
    lengths[events] = length + sizeof DONE - 1;
  }
  return answers[events];
}

/* The result of a failed call of OpenSSL, as errno says it: to be repeated, or the end. */
static ssize_t fail_tls(Connection *each, int result) {
  int error = SSL_get_error(each->tls, result);
  ERR_clear_error();
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
  return -1;
}

static ssize_t receive(Connection *each, char *to, size_t room) {
  if (each->tls == NULL) return recv(each->fd, to, room, 0);
  int got = SSL_read(each->tls, to, (int)room);
  return got > 0 ? got : fail_tls(each, got);
}

/* Sends as much as possible at once. */
static ssize_t transmit(Connection *each, const char *bytes, size_t length) {
  if (each->tls == NULL) return send(each->fd, bytes, length, MSG_NOSIGNAL);
  size_t sent = 0;
  while (sent < length) {
    int part = SSL_write(each->tls, bytes + sent, (int)(length - sent)); /* one record at most */
    if (part <= 0 && sent == 0) return fail_tls(each, part);
    if (part <= 0) break;
    sent += (size_t)part;
  }
  return (ssize_t)sent;
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
  SSL_free(each->tls);
  close(each->fd);
  free(each);
}

/* Sends as much as possible, and the rest when there is room. */
static void send_out(Connection *each, const char *bytes, size_t length) {
  ssize_t sent = transmit(each, bytes, length);
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
  length += make_event(bytes + length, WORD, is_last, now());
  if (is_last) {
    memcpy(bytes + length, DONE, sizeof DONE - 1);
    length += sizeof DONE - 1;
  }
  if (transmit(each, bytes, length) != (ssize_t)length) return drop(each);
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
  if (memmem(body, looked, "\"stream\":true", 13) == NULL) {
    long bytes = option_of(body, looked, "bytes=", 0);
    if (bytes <= 0 || bytes > MAX_TEXT_BYTES) return send_out(each, plain, plain_length);
    const char *text = text_of(bytes);
    return send_out(each, text, text_length);
  }
  long deltas = option_of(body, looked, "deltas=", 0);
  if (deltas > 0 && deltas <= MAX_EVENTS) {
    const char *whole = stream_of(deltas, DELTA, delta_answer, delta_length);
    return send_out(each, whole, delta_length[deltas]);
  }
  long events = option_of(body, looked, "events=", DEFAULT_EVENTS);
  each->interval = 1000u * (uint64_t)option_of(body, looked, "interval_us=", 0);
  if (events < 1) events = 1;
  if (each->interval == 0) {
    if (events > MAX_EVENTS) events = MAX_EVENTS;
    const char *whole = stream_of(events, WORD, stream_answer, stream_length);
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
  ssize_t got = is_kept ? receive(each, each->input + each->length, room) : receive(each, sink, sizeof sink);
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

static void accept_all(int listener, bool is_tls) {
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
    if (is_tls) {
      each->tls = SSL_new(tls_context);
      SSL_set_fd(each->tls, fd);
      SSL_set_accept_state(each->tls);
    }
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

static void prepare_tls(const char *certificate, const char *key) {
  tls_context = SSL_CTX_new(TLS_server_method());
  SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (SSL_CTX_use_certificate_chain_file(tls_context, certificate) == 1 &&
      SSL_CTX_use_PrivateKey_file(tls_context, key, SSL_FILETYPE_PEM) == 1) return;
  ERR_print_errors_fp(stderr);
  exit(2);
}

static int add_listener(int port, uint32_t place) {
  int fd = open_listener(port, place);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
  epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  return fd;
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  if (count != 2 && count != 5) return fprintf(stderr, "usage: provider PORT [TLS_PORT CERTIFICATE_FILE KEY_FILE]\n"), 2;
  make_answers();
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  poller = epoll_create1(EPOLL_CLOEXEC);
  int last_listener = 0, tls_listener = -1;
  for (uint32_t place = 0; place < ADDRESSES; place++) last_listener = add_listener(atoi(arguments[1]), place);
  if (count == 5) {
    prepare_tls(arguments[3], arguments[4]);
    last_listener = tls_listener = add_listener(atoi(arguments[2]), 0);
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
      Connection *each = connections[fd];
      if (fd <= last_listener && each == NULL) accept_all(fd, fd == tls_listener);
      else if (each == NULL) continue;
      else if (ready[index].events & EPOLLOUT) flush(each);
      else do take(each); while (connections[fd] == each && each->tls != NULL && SSL_pending(each->tls) > 0);
    }
    while (first_due != NULL && first_due->due <= now()) {
      Connection *each = first_due;
      uint64_t due = each->due;
      unlink_due(each);
      send_event(each, false, due);
    }
  }
}
