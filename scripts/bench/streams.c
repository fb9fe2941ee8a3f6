/*
 * The caller that keeps many streams open: one thread, epoll. Prints one line of JSON; times are microseconds.
 *
 *   streams paced PORT REQUEST_FILE STREAMS EVENTS_A_SECOND SETTLE_SECONDS SECONDS PID
 *   streams quiet PORT REQUEST_FILE STREAMS
 *
 * REQUEST_FILE contains a whole HTTP request. Streams are opened at an even pace, OPENED_A_SECOND of them. `paced` then
 * waits for SETTLE_SECONDS and measures for SECONDS: the processor time of all threads of PID, the events that are read
 * in that time, and their delays, each from the event's "t" (when the provider sent it, CLOCK_MONOTONIC in nanoseconds)
 * to the return of the receive that read it. The provider keeps its pace regardless of the callers, so a delayed event
 * visibly delays the events after it. The processor time and the events since before the first stream was opened are
 * printed too ("all"). A stream that ends before its time, or that has fewer than EVENTS_A_SECOND, is
 * wrong. `quiet` opens streams, each from one of several source addresses, waits for the first event of each, prints its
 * line, and keeps the streams open until its stdin ends.
 */
#include "answer.h"
#include <dirent.h>
#include <sys/resource.h>

enum { READ_BYTES = 65536, OPENED_A_SECOND = 2000, STREAMS_PER_ADDRESS = 20000, QUIET_WAIT_SECONDS = 10 };
/* Delays are counted as in HdrHistogram: 128 steps for each doubling, so the error is at most 0.8 %. */
enum { STEP_BITS = 7, STEPS = 1 << STEP_BITS, HISTOGRAM_SIZE = (65 - STEP_BITS) * STEPS };

static char buffer[READ_BYTES];
static uint64_t histogram[HISTOGRAM_SIZE], delay_count, delay_max, event_count, begun_count, arrived_at;
static bool is_measuring;

static size_t index_of(uint64_t value) {
  if (value < 2 * STEPS) return value;
  int shift = 63 - __builtin_clzll(value) - STEP_BITS;
  return (size_t)shift * STEPS + (value >> shift);
}

/* The largest value that is counted at an index. */
static uint64_t value_at(size_t index) {
  if (index < 2 * STEPS) return index;
  size_t shift = index / STEPS - 1;
  return ((index % STEPS + STEPS + 1) << shift) - 1;
}

static double percentile(double part) {
  uint64_t seen = 0, wanted = (uint64_t)(part * (double)delay_count + 0.5);
  for (size_t index = 0; index < HISTOGRAM_SIZE; index++) {
    if ((seen += histogram[index]) < wanted || seen == 0) continue;
    uint64_t value = value_at(index);
    return (double)(value < delay_max ? value : delay_max) / 1000.0;
  }
  return 0;
}

/* A whole line of a stream. An event ends with the time at which it was sent: ,"t":NUMBER} */
static void take_line(Answer *answer, const char *line, size_t length) {
  if (length < 7 || memcmp(line, "data: {", 7) != 0) return;
  if (answer->events++ == 0) begun_count++;
  if (!is_measuring) return;
  event_count++;
  const char *at = memrchr(line, ':', length);
  if (at == NULL || at < line + 3 || memcmp(at - 3, "\"t\"", 3) != 0) return;
  uint64_t sent = strtoull(at + 1, NULL, 10), delay = arrived_at > sent ? arrived_at - sent : 0;
  histogram[index_of(delay)]++;
  delay_count++;
  if (delay > delay_max) delay_max = delay;
}

static void take_body(Answer *answer, const char *bytes, size_t length) {
  answer->body_length += length;
  while (length > 0) {
    const char *end = memchr(bytes, '\n', length);
    size_t part = end == NULL ? length : (size_t)(end - bytes);
    if (end != NULL && answer->line_length == 0) take_line(answer, bytes, part); /* a whole line, as nearly always */
    else {
      size_t room = LINE_BYTES - answer->line_length, kept = part < room ? part : room;
      memcpy(answer->line + answer->line_length, bytes, kept);
      answer->line_length += kept;
      if (end != NULL) {
        answer->line[answer->line_length] = '\0';
        take_line(answer, answer->line, answer->line_length);
        answer->line_length = 0;
      }
    }
    if (end == NULL) return;
    bytes += part + 1;
    length -= part + 1;
  }
}

/* Reads streams until `until`, or, if a number is given, until that many have begun. */
static void listen_until(int poller, Answer **answers, uint64_t until, uint64_t wanted) {
  struct epoll_event ready[256];
  while (wanted == 0 || begun_count < wanted) {
    uint64_t time = now();
    if (time >= until) return;
    struct timespec wait = {.tv_sec = (time_t)((until - time) / 1000000000u), .tv_nsec = (long)((until - time) % 1000000000u)};
    int found = epoll_pwait2(poller, ready, 256, &wait, NULL);
    for (int index = 0; index < found; index++) {
      Answer *answer = answers[ready[index].data.u32];
      ssize_t got = recv(answer->fd, buffer, sizeof buffer, MSG_DONTWAIT);
      arrived_at = now();
      if (got > 0) feed(answer, buffer, (size_t)got);
      else if (got == 0 || errno != EAGAIN) {
        answer->state = BROKEN;
        epoll_ctl(poller, EPOLL_CTL_DEL, answer->fd, NULL);
      }
    }
  }
}

static Answer **open_streams(int poller, int port, const char *request, size_t length, size_t count, bool is_spread) {
  Answer **answers = calloc(count, sizeof *answers);
  uint64_t started = now();
  for (size_t index = 0; index < count; index++) {
    Answer *answer = answers[index] = calloc(1, sizeof *answer);
    reset(answer);
    answer->fd = open_connection(port, is_spread ? INADDR_LOOPBACK + 1 + (uint32_t)(index / STREAMS_PER_ADDRESS) : 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)index};
    epoll_ctl(poller, EPOLL_CTL_ADD, answer->fd, &event);
    send_request(answer->fd, request, length);
    listen_until(poller, answers, started + 1000000000ull * (index + 1) / OPENED_A_SECOND, 0);
  }
  return answers;
}

static bool is_open(const Answer *answer) {
  return answer->state != BROKEN && answer->state != AT_END && answer->status == 200 && answer->events > 0;
}

/* Nanoseconds of processor time of a process, over all its threads. */
static uint64_t read_cpu(const char *pid) {
  char path[512];
  uint64_t sum = 0, part;
  snprintf(path, sizeof path, "/proc/%s/task", pid);
  DIR *tasks = opendir(path);
  if (tasks == NULL) fail("cannot read processor time");
  for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
    if (task->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/%s/task/%s/schedstat", pid, task->d_name);
    FILE *file = fopen(path, "r");
    if (file == NULL) continue;
    if (fscanf(file, "%" SCNu64, &part) == 1) sum += part;
    fclose(file);
  }
  closedir(tasks);
  return sum;
}

/* Ticks of 10 ms that core 0 and core 1 were busy (proc(5), /proc/stat). */
static void read_cores(uint64_t busy[2]) {
  FILE *file = fopen("/proc/stat", "r");
  char line[512];
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    uint64_t t[8];
    int core;
    if (sscanf(line, "cpu%d %lu %lu %lu %lu %lu %lu %lu %lu", &core, t, t + 1, t + 2, t + 3, t + 4, t + 5, t + 6, t + 7) != 9) continue;
    if (core < 2) busy[core] = t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
  }
  if (file != NULL) fclose(file);
}

static int measure_paced(int port, const char *request, size_t length, char **arguments) {
  size_t count = (size_t)atol(arguments[0]), wrong = 0;
  double rate = atof(arguments[1]), settle = atof(arguments[2]), seconds = atof(arguments[3]);
  const char *pid = arguments[4];
  int poller = epoll_create1(EPOLL_CLOEXEC);
  uint64_t all_cpu = read_cpu(pid), all_events = 0;
  Answer **answers = open_streams(poller, port, request, length, count, false);
  listen_until(poller, answers, now() + (uint64_t)(settle * 1e9), 0);
  uint64_t busy_before[2] = {0}, busy_after[2] = {0}, *seen = calloc(count, sizeof *seen);
  for (size_t index = 0; index < count; index++) seen[index] = answers[index]->events;
  read_cores(busy_before);
  uint64_t cpu = read_cpu(pid), started = now();
  is_measuring = true;
  listen_until(poller, answers, started + (uint64_t)(seconds * 1e9), 0);
  is_measuring = false;
  all_cpu = read_cpu(pid) - all_cpu;
  cpu = read_cpu(pid) - cpu;
  double elapsed = (double)(now() - started);
  read_cores(busy_after);
  for (size_t index = 0; index < count; index++) {
    double events = (double)(answers[index]->events - seen[index]);
    if (!is_open(answers[index]) || events < rate * seconds * 0.9 - 1) wrong++;
    all_events += answers[index]->events;
    close(answers[index]->fd);
  }
  printf("{\"allEvents\":%lu,\"allCpuNs\":%lu,\"events\":%lu,\"wrong\":%zu,\"seconds\":%.6f,\"cpuNs\":%lu,\"coreBusy\":%.4f,\"loadBusy\":%.4f,", all_events, all_cpu, event_count,
         wrong, elapsed / 1e9, cpu, (double)(busy_after[0] - busy_before[0]) * 1e7 / elapsed, (double)(busy_after[1] - busy_before[1]) * 1e7 / elapsed);
  printf("\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"p9999\":%.1f,\"max\":%.1f}\n", percentile(0.5), percentile(0.9),
         percentile(0.99), percentile(0.999), percentile(0.9999), (double)delay_max / 1000.0);
  return 0;
}

static int hold_quiet(int port, const char *request, size_t length, size_t count) {
  int poller = epoll_create1(EPOLL_CLOEXEC);
  uint64_t started = now();
  Answer **answers = open_streams(poller, port, request, length, count, true);
  listen_until(poller, answers, now() + QUIET_WAIT_SECONDS * 1000000000ull, count);
  size_t wrong = 0;
  for (size_t index = 0; index < count; index++) wrong += !is_open(answers[index]);
  printf("{\"open\":%zu,\"wrong\":%zu,\"seconds\":%.3f}\n", count - wrong, wrong, (double)(now() - started) / 1e9);
  fflush(stdout);
  while (read(STDIN_FILENO, buffer, sizeof buffer) > 0) continue;
  return 0;
}

int main(int count, char **arguments) {
  bool is_paced = count == 9 && strcmp(arguments[1], "paced") == 0, is_quiet = count == 5 && strcmp(arguments[1], "quiet") == 0;
  if (!is_paced && !is_quiet) return fprintf(stderr, "usage: streams paced|quiet PORT REQUEST_FILE STREAMS ...\n"), 2;
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  size_t length;
  int port = atoi(arguments[2]);
  char *request = read_file(arguments[3], &length);
  if (is_paced) return measure_paced(port, request, length, arguments + 4);
  return hold_quiet(port, request, length, (size_t)atol(arguments[4]));
}
