/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The soak: the release library at full speed on every core for as long as asked, on the host
 * device. Each thread allocates and frees without a pause, small and large blocks of its own and of
 * other threads, and between that does all else that tarn can: chores.c. Time is cut into windows.
 * At the end of each the workers meet, all is freed and trimmed, and what the process has then is
 * compared with what it had after the first windows: growth is a failure.
 *
 * The same mix without the chores runs before and after, by tarn and by mimalloc in turn: their
 * latencies, at the start and at the end, are the last table. */
#include "soak.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_WORKERS 1024
#define PATIENCE 120 /* seconds after which workers that do not meet hang */

atomic_bool closing, disturbed;

static struct worker *workers;
unsigned worker_count;
static double seconds = 60;
static double window; /* seconds; 0: chosen by the length */
static uint64_t seed = 1;
static atomic_uint complaints;
static volatile sig_atomic_t interrupted;

void wrong(const char *format, ...)
{
    va_list arguments;
    if (atomic_fetch_add(&complaints, 1) >= 20)
        return; /* enough is known */
    flockfile(stdout);
    fputs("WRONG: ", stdout);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    funlockfile(stdout);
}

bool is_wrong(void)
{
    return atomic_load(&complaints) > 0;
}

/* The workers, and how they are told to begin. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened, met;
    const struct allocator *allocator; /* lock: of the window */
    enum kind kind;                    /* lock: of the window */
    unsigned number;                   /* lock: of the window; 0 before the first */
    unsigned meeting;                  /* lock: workers that wait for the next */
} turn = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .opened = PTHREAD_COND_INITIALIZER,
          .met = PTHREAD_COND_INITIALIZER};

static atomic_uint_fast64_t births;

static void *work(void *argument);

/* A worker that dies has a successor, which waits for its end: so that no core is idle meanwhile,
 * and none is too many. */
struct heir {
    struct worker *worker;
    pthread_t before;
    unsigned window;
};

static void *inherit(void *argument);

static void die(struct worker *worker, unsigned number)
{
    struct heir *heir = malloc(sizeof *heir);
    if (heir) {
        *heir = (struct heir){worker, pthread_self(), number};
        int status = pthread_create(&worker->thread, NULL, inherit, heir);
        if (status == 0)
            return;
        free(heir);
    }
    fprintf(stderr, "soak: no thread can be made\n");
    exit(1);
}

/* Runs a window. Gives whether the thread goes on. */
static bool run_window(struct worker *worker, enum kind kind, const struct allocator *allocator)
{
    while (!atomic_load_explicit(&closing, memory_order_relaxed)) {
        mix_run(allocator, worker, 1024);
        if (kind == MIX_AND_CHORES)
            chores_run(worker);
        if (worker->dies)
            return false;
    }
    if (kind == MIX_AND_CHORES)
        chores_tidy(worker);
    mix_finish(allocator, worker);
    return true;
}

/* Waits for a window after `number`. Gives its number. */
static unsigned window_wait(unsigned number, enum kind *kind, const struct allocator **allocator)
{
    pthread_mutex_lock(&turn.lock);
    if (number > 0 && ++turn.meeting == worker_count)
        pthread_cond_signal(&turn.met);
    while (turn.number == number)
        pthread_cond_wait(&turn.opened, &turn.lock);
    *kind = turn.kind;
    *allocator = turn.allocator;
    number = turn.number;
    pthread_mutex_unlock(&turn.lock);
    return number;
}

static void live(struct worker *worker, unsigned number, enum kind kind,
                 const struct allocator *allocator)
{
    while (kind != OVER) {
        if (!run_window(worker, kind, allocator)) {
            worker->dies = false;
            die(worker, number);
            return;
        }
        number = window_wait(number, &kind, &allocator);
    }
}

static void *inherit(void *argument)
{
    struct heir heir = *(struct heir *)argument;
    free(argument);
    pthread_join(heir.before, NULL);
    atomic_fetch_add(&births, 1);
    live(heir.worker, heir.window, MIX_AND_CHORES, &tarn);
    return NULL;
}

static void *work(void *argument)
{
    enum kind kind = OVER;
    const struct allocator *allocator = NULL;
    unsigned number = window_wait(0, &kind, &allocator);
    live(argument, number, kind, allocator);
    return NULL;
}

static void workers_start(void)
{
    for (unsigned i = 0; i < worker_count; i++) {
        workers[i].number = i;
        workers[i].random = (seed * MOST_WORKERS + i + 1) * 0x9e3779b97f4a7c15u;
        workers[i].chore = -1;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            fprintf(stderr, "soak: no thread can be made\n");
            exit(1);
        }
    }
}

static void open_window(enum kind kind, const struct allocator *allocator)
{
    pthread_mutex_lock(&turn.lock);
    turn.kind = kind;
    turn.allocator = allocator;
    turn.meeting = 0;
    atomic_store(&closing, false);
    atomic_store(&disturbed, kind == MIX_AND_CHORES);
    turn.number++;
    pthread_cond_broadcast(&turn.opened);
    pthread_mutex_unlock(&turn.lock);
}

/* Tells the workers to meet, and waits until they have. What hangs cannot be ended: the program
 * does. */
static void close_window(void)
{
    struct timespec limit;
    int status = 0;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += PATIENCE;
    pthread_mutex_lock(&turn.lock);
    atomic_store(&closing, true);
    while (turn.meeting < worker_count && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&turn.met, &turn.lock, &limit);
    pthread_mutex_unlock(&turn.lock);
    if (status != ETIMEDOUT)
        return;
    printf("FAILED: workers hang:");
    for (unsigned i = 0; i < worker_count; i++)
        printf(" %u in %s;", i, chore_name(atomic_load(&workers[i].chore)));
    putchar('\n');
    fflush(stdout);
    abort(); /* the core says where */
}

static void workers_end(void)
{
    open_window(OVER, NULL);
    for (unsigned i = 0; i < worker_count; i++)
        pthread_join(workers[i].thread, NULL);
}

/* What a window has measured. */
struct figures {
    struct latencies latencies;
    uint64_t operations, refused;
    double seconds;
};

static void figures_take(struct figures *figures)
{
    memset(figures, 0, sizeof *figures);
    for (unsigned i = 0; i < worker_count; i++) {
        for (int class = 0; class < 2; class ++) {
            latency_add(&figures->latencies.alloc[class], &workers[i].latencies.alloc[class]);
            latency_add(&figures->latencies.free[class], &workers[i].latencies.free[class]);
        }
        figures->operations += workers[i].operations;
        figures->refused += workers[i].refused;
        workers[i].operations = workers[i].refused = 0;
        memset(&workers[i].latencies, 0, sizeof workers[i].latencies);
    }
}

/* Waits until a time, with a line of progress on a terminal. */
static void wait_until(double time, double began, const char *what)
{
    bool shows = isatty(STDOUT_FILENO);
    for (double now; (now = clock_seconds()) < time && !interrupted && !is_wrong();) {
        double rest = time - now, nap = rest < 0.5 ? rest : 0.5;
        if (shows) {
            printf("\r\033[K%6.0f s  %s", now - began, what);
            fflush(stdout);
        }
        nanosleep(&(struct timespec){(time_t)nap, (long)((nap - floor(nap)) * 1e9)}, NULL);
    }
    if (shows)
        printf("\r\033[K");
}

static double began;

static void run(enum kind kind, const struct allocator *allocator, double length,
                struct figures *figures)
{
    double start = clock_seconds();
    open_window(kind, allocator);
    wait_until(start + length, began, kind == MIX_ALONE ? allocator->name : "soaking");
    close_window();
    mix_finish_mailboxes(allocator);
    figures_take(figures);
    figures->seconds = clock_seconds() - start;
}

static const double parts[] = {0.5, 0.99, 0.9999, 1};
#define PARTS (sizeof parts / sizeof *parts)

static void line_head(void)
{
    printf("\n%8s %8s %8s  %-23s  %-23s  %8s %9s %8s %5s %8s\n", "seconds", "million", "million",
           "tarn_malloc, ns", "tarn_free, ns", "resident", "metadata", "mappings", "files",
           "reserved");
    printf("%8s %8s %8s  %6s %6s %9s  %6s %6s %9s  %8s %9s %8s %5s %8s\n", "", "calls", "a second",
           "p50", "p99", "p99.99", "p50", "p99", "p99.99", "MiB", "KiB", "", "", "at rest");
}

static void line(const struct figures *figures, const struct rest *rest)
{
    const struct latencies *latencies = &figures->latencies;
    printf("%8.0f %8.1f %8.2f ", clock_seconds() - began, (double)figures->operations / 1e6,
           (double)figures->operations / 1e6 / figures->seconds);
    for (int i = 0; i < 3; i++)
        printf(" %*.0f", i < 2 ? 6 : 9, latency_ns(&latencies->alloc[0], parts[i]));
    putchar(' ');
    for (int i = 0; i < 3; i++)
        printf(" %*.0f", i < 2 ? 6 : 9, latency_ns(&latencies->free[0], parts[i]));
    printf("  %8.1f %9.1f %8" PRId64 " %5" PRId64 " %8" PRId64 "\n",
           (double)rest->resident / (double)MIB, (double)rest->metadata / 1024, rest->mappings,
           rest->files, rest->reserved);
}

/* The windows with all that tarn can do. */
struct storm {
    struct figures first, last;
    struct rest settled, at_rest; /* after the first windows; after the last */
    unsigned windows;
    uint64_t operations, refused;
};

static void storm_run(struct storm *storm, double length)
{
    double start = clock_seconds();
    /* Windows after which all is as large as it gets */
    unsigned settling = (unsigned)(length / window / 10) + 2;
    line_head();
    while (clock_seconds() < start + length - window / 2 && !interrupted && !is_wrong()) {
        struct figures *figures = storm->windows ? &storm->last : &storm->first;
        if (storm->windows == 1)
            chores_warm(); /* not in the first, whose latencies are compared */
        run(MIX_AND_CHORES, &tarn, window, figures);
        chores_rest();
        storm->at_rest = rest_look();
        rest_check(&storm->at_rest);
        storm->operations += figures->operations;
        storm->refused += figures->refused;
        line(figures, &storm->at_rest);
        if (storm->windows++ < settling)
            rest_most(&storm->settled, &storm->at_rest);
        else
            rest_compare(&storm->settled, storm->at_rest, atomic_load(&births));
    }
    if (storm->windows == 1)
        storm->last = storm->first;
}

/* The tables at the end ------------------------------------------------------------------------ */

static void row(const char *name, const struct latency *first, const struct latency *last)
{
    printf("  %-18s", name);
    for (size_t i = 0; i < PARTS; i++)
        printf(" %9.0f", latency_ns(first, parts[i]));
    printf("  ");
    for (size_t i = 0; i < PARTS; i++)
        printf(" %9.0f", latency_ns(last, parts[i]));
    putchar('\n');
}

static void row_of_ratios(const char *name, const struct latency *first[2],
                          const struct latency *last[2])
{
    printf("  %-18s", name);
    for (int end = 0; end < 2; end++) {
        for (size_t i = 0; i < PARTS; i++) {
            const struct latency *const *pair = end ? last : first;
            double peer = latency_ns(pair[1], parts[i]);
            if (peer > 0)
                printf(" %9.2f", latency_ns(pair[0], parts[i]) / peer);
            else
                printf(" %9s", "-");
        }
        printf("  ");
    }
    putchar('\n');
}

static void print_latencies(const struct storm *storm, struct figures mixes[2][2], const char *peer)
{
    static const char *classes[] = {"to 64 KiB", "64 KiB to 16 MiB"};
    printf("\nLatencies in ns, less the %.0f ns that reading the clock takes; one window at the "
           "start, one at the end\n",
           latency_overhead());
    printf("  %-18s %9s %9s %9s %9s   %9s %9s %9s %9s\n", "", "p50", "p99", "p99.99", "max", "p50",
           "p99", "p99.99", "max");
    for (int call = 0; call < 4; call++) {
        int class = call / 2;
#define OF(figures) \
    (call % 2 ? &(figures)->latencies.free[class] : &(figures)->latencies.alloc[class])
        printf("%s, %s\n", call % 2 ? "free" : "malloc", classes[class]);
        row("tarn, all at once", OF(&storm->first), OF(&storm->last));
        row("tarn, the mix", OF(&mixes[0][0]), OF(&mixes[0][1]));
        if (!peer)
            continue;
        const struct latency *first[2] = {OF(&mixes[0][0]), OF(&mixes[1][0])};
        const struct latency *last[2] = {OF(&mixes[0][1]), OF(&mixes[1][1])};
        char name[32];
        snprintf(name, sizeof name, "%s, the mix", peer);
        row(name, first[1], last[1]);
        snprintf(name, sizeof name, "tarn/%s", peer);
        row_of_ratios(name, first, last);
#undef OF
    }
}

static void print_summary(const struct storm *storm)
{
    const struct rest *first = &storm->settled, *last = &storm->at_rest;
    putchar('\n');
    chores_print();
    printf("%.0f million calls of the mix, %" PRIu64 " of them refused for lack of memory; %" PRIu64
           " threads ended and were replaced\n",
           (double)storm->operations / 1e6, storm->refused, (uint64_t)atomic_load(&births));
    printf("at rest after the first windows, and after the last: metadata %" PRId64 " and %" PRId64
           " KiB, resident %" PRId64 " and %" PRId64 " KiB, mappings %" PRId64 " and %" PRId64
           ", files %" PRId64 " and %" PRId64 ", the driver's events %" PRId64 " and %" PRId64
           ", reserved %" PRId64 "\n",
           first->metadata / 1024, last->metadata / 1024, first->resident / 1024,
           last->resident / 1024, first->mappings, last->mappings, first->files, last->files,
           first->events, last->events, last->reserved);
    if (is_wrong())
        kinds_print(&first->kinds, &last->kinds);
}

/* The whole ------------------------------------------------------------------------------------ */

static void soak(void)
{
    static struct storm storm;
    static struct figures mixes[2][2], warm; /* tarn's and the peer's; at the start and at the
                                                end */
    const struct allocator *peer = mimalloc_open(), *allocators[2] = {&tarn, peer};
    /* Seconds of each window of the mix alone */
    double share = seconds / 20 < 10 ? seconds / 20 : 10;
    int count = peer ? 2 : 1;
    workers_start();
    for (int i = 0; i < count && !interrupted; i++) {
        run(MIX_ALONE, allocators[i], share / 4, &warm);
        run(MIX_ALONE, allocators[i], share, &mixes[i][0]);
    }
    storm_run(&storm, seconds - (double)count * 2.25 * share);
    for (int i = count; i-- > 0 && !is_wrong();)
        run(MIX_ALONE, allocators[i], share, &mixes[i][1]);
    workers_end();
    print_latencies(&storm, mixes, peer ? peer->name : NULL);
    print_summary(&storm);
    printf("soak: %.0f s, %u windows, %u complaints: %s\n", clock_seconds() - began, storm.windows,
           atomic_load(&complaints),
           is_wrong()    ? "FAILED"
           : interrupted ? "interrupted"
                         : "ok");
}

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void usage(FILE *file)
{
    fputs("Usage: soak [OPTION]...\n"
          "Runs tarn on the host device at full speed: allocations and frees by every thread, and "
          "between them "
          "captures, private\n"
          "pools, suspends, streams, pinned and shared memory, handles, traces, threads that end, "
          "and calls of the "
          "driver that\n"
          "fail. Prints latencies beside mimalloc's, and fails where anything grows. Interrupted, "
          "it ends with the "
          "summary.\n\n"
          "  -s, --seconds=N   how long in all (60)\n"
          "  -w, --window=N    seconds between two looks at what the process has (a minute, or a "
          "sixth of the time)\n"
          "  -t, --threads=N   how many threads (one per core)\n"
          "  -r, --seed=N      of what is done at random (1)\n"
          "  -h, --help        this\n",
          file);
}

static double number_of(const char *text, double least, double most)
{
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= least && number <= most)) {
        fprintf(stderr, "soak: %s: not a number from %g to %g\n", text, least, most);
        exit(2);
    }
    return number;
}

static void options_read(int argc, char **argv)
{
    static const struct option options[] = {
        {"seconds", required_argument, NULL, 's'}, {"window", required_argument, NULL, 'w'},
        {"threads", required_argument, NULL, 't'}, {"seed", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},          {0}};
    for (int option; (option = getopt_long(argc, argv, "s:w:t:r:h", options, NULL)) != -1;)
        switch (option) {
        case 's':
            seconds = number_of(optarg, 1, 1e7);
            break;
        case 'w':
            window = number_of(optarg, 0.1, 1e7);
            break;
        case 't':
            worker_count = (unsigned)number_of(optarg, 1, MOST_WORKERS);
            break;
        case 'r':
            seed = (uint64_t)number_of(optarg, 0, 1e15);
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    if (optind < argc) {
        usage(stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    worker_count = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    options_read(argc, argv);
    if (window == 0)
        window = seconds > 360 ? 60 : seconds / 6;
    setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX,
            1); /* of another than the first one malloc_trim() leaves the end as it is, with MiB of
                   symbols */
#endif
    workers = calloc(worker_count, sizeof *workers);
    tarn_host_configuration config = {.size = sizeof config, .devices = DEVICES};
    config.memory = (worker_count < 5 ? 5 : worker_count) * 256 * MIB;
    if (!workers || tarn_host_configuration_set(&config) != TARN_OK) {
        fprintf(stderr, "soak: %s\n", tarn_last_error());
        return 1;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = interrupt}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = interrupt}, NULL);
    latency_start();
    began = clock_seconds();
    printf("soak: tarn %s, %u threads, %.0f s in windows of %.3g s, seed %" PRIu64 "\n",
           tarn_version(), worker_count, seconds, window, seed);
    chores_start(workers, worker_count);
    soak();
    return is_wrong() ? 1 : 0;
}
