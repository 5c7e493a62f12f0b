/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A random model over the public API in which all features meet: allocation and free, pools and
 * scopes, suspends and checkpoints, captures of each kind and their graphs, handles with
 * workspaces, streams and threads that come and go, on a device that is nearly full, with calls
 * that fail. What is checked, and by what: tests/mixed/model/mixed.h.
 *
 *   mixed.model [--seed N] [--steps N] [--seconds N] [--replay FILE] [--no-shorten]
 *
 * A run is a list of operations, each with a random word of its own, which the seed gives; it runs
 * in a child process. Where it fails, the list is shortened to the fewest operations that fail in
 * the same way, printed, and written to a file for --replay. With --seconds, runs with random seeds
 * follow until then. TARN_SEED and TARN_MODEL_STEPS stand for the options; without either the seeds
 * are 1 to 6, or to TARN_MIXED_SEEDS. TARN_MIXED_SHOW=1 prints each call. TARN_MIXED_PLAN is a
 * plan, which is followed beside the other settings; with TARN_MIXED_IDLE=1 idle memory goes back
 * by itself between the steps.
 *
 * Each run has an owner of kept pools, which is the program that TARN_PROGRAM names; without it
 * there are no kept pools. The owner is killed and started again meanwhile, in half of the runs by
 * a service manager. Every third run ends by a kill, and other processes take over what it
 * leaves. */
#include "mixed/model/mixed.h"
#include "support/owner.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct model m;

/* ---- Operations ---- */

static const struct operation *const groups[] = {
    block_operations,  stream_operations, pool_operations,  graph_operations, handle_operations,
    pinned_operations, share_operations,  sleep_operations, count_operations, ask_operations,
    range_operations,  kept_operations,   read_operations,  owner_operations};
enum { OPERATIONS = 128 };
static const struct operation *operations[OPERATIONS];
static int operation_count;
static unsigned weights;

static void operations_list(void)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (const struct operation *operation = groups[i]; operation->name; operation++) {
            operations[operation_count++] = operation;
            weights += operation->weight;
        }
}

struct step {
    int operation;
    uint64_t word;
};

/* ---- Random words ---- */

uint64_t word(void)
{
    uint64_t z = m.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

unsigned below(unsigned count)
{
    return count ? (unsigned)((word() >> 20) % count) : 0;
}

static void steps_make(uint64_t seed, struct step *steps, int count)
{
    m.random = seed * 0x2545f4914f6cdd1du;
    for (int i = 0; i < count; i++) {
        unsigned at = below(weights);
        int chosen = 0;
        while (at >= operations[chosen]->weight)
            at -= operations[chosen++]->weight;
        steps[i] = (struct step){chosen, word()};
    }
}

/* ---- A run, in a child ---- */

/* What a child reports. */
static struct told {
    int step; /* the step that it was at */
    bool over;
    bool dies;               /* it has ended by a kill, as it was to: */
    struct heir heirs[KEPT]; /* this is left */
    char what[128], text[1024];
    uint64_t allocations, shortages, injected, launches, suspends, restores, workspaces, checks,
        refused, sleeps, shares, planned, adoptions, finds, owners, losses;
} * told;

void fault(const char *what, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told->text, sizeof told->text, format, arguments);
    va_end(arguments);
    snprintf(told->what, sizeof told->what, "%s", what);
    _exit(3);
}

void show(const char *format, ...)
{
    va_list arguments;
    if (!getenv("TARN_MIXED_SHOW"))
        return;
    va_start(arguments, format);
    fprintf(stderr, "    ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
}

#define IDLE "idle_release:86400000" /* a day, in ms: the test makes the passes */

static void configure(uint64_t seed)
{
    static const size_t memories[] = {96, 128, 192, 512};
    static const char *const settings[] = {"",
                                           "",
                                           "",
                                           "large_segment_size_mb:24",
                                           "segments:plain",
                                           "max_split_size_mb:32",
                                           "segments:exact,garbage_collection_threshold:0.5",
                                           "graph_capture_record_stream_reuse:True",
                                           "roundup_power2_divisions:4,leave_free_mb:8"};
    static const char *const workspaces[] = {"cached", "cached", "cached", "per_call"};
    m.random = seed;
    m.devices = DEVICES;
    m.memory = memories[below(4)] * MIB;
    const char *setting = settings[below(9)];
    char all[512];
    const char *plan = getenv("TARN_MIXED_PLAN");
    m.planned = plan != NULL;
    m.idle = getenv("TARN_MIXED_IDLE") != NULL;
    snprintf(all, sizeof all, "%s%s%s%s%s", setting, *setting && (plan || m.idle) ? "," : "",
             plan ? "plan:" : "", plan ? plan : "", m.idle ? plan ? "," IDLE : IDLE : "");
    if (*all && setenv("TARN_ALLOC_CONF", all, 0))
        fault("the test's own", "%s", strerror(errno));
    if (setenv("TARN_WORKSPACE", workspaces[below(4)], 0) ||
        (CHANCE(8) && setenv("TARN_TRACE", "on", 0)))
        fault("the test's own", "%s", strerror(errno));
    m.plain = strstr(setting, "segments") != NULL;
    const char *name = getenv("TARN_DRIVER");
    m.vendor = name && strcmp(name, "host") != 0;
    m.waits_for_all = m.vendor && strcmp(name, "hip") == 0;
    if (m.vendor && setenv("TARN_HIP_VMM", "1", 0))
        fault("the test's own", "%s", strerror(errno));
    static const char *const tags[] = {"weights", "activations"};
    host_start_with(m.devices, m.memory);
    if (plan) /* any first call reads the plan, and may have no host memory for it */
        MINE(tarn_configuration_get(NULL, 0, NULL));
    for (int i = 0; i < 2; i++)
        SURE(tarn_tag_intern, tags[i], &m.tags[i + 1]);
    for (int i = 0; i < m.devices; i++)
        m.limit[i] = TARN_NO_LIMIT;
    for (int i = 0; i < CAPTURES; i++)
        m.captures[i].pool = -1;
    m.exports = CHANCE(3) && tarn_export_enable(0) == TARN_OK;
}

static const struct step *now;
static const struct operation *operation_now;

static void run_now(void)
{
    operation_now->run();
}

static void step_run(const struct step *step)
{
    operation_now = operations[step->operation];
    now = step;
    m.random = step->word;
    m.actor = (int)below(ACTORS);
    m.inject = CHANCE(12) ? 1 + below(200) : 0;
    if (getenv("TARN_MIXED_SHOW"))
        fprintf(stderr, "%d: %s by %d%s\n", m.step, operation_now->name, m.actor,
                m.inject ? " with failures" : "");
    if (operation_now->may && !operation_now->may())
        return;
    if (operation_now->by_main)
        operation_now->run();
    else
        actor_run(m.actor, run_now);
    m.inject = 0;
    owner_look();
}

static void nothing_left(void)
{
    segments_settle();
    for (int device = 0; device < m.devices; device++) {
        tarn_host_ledger ledger = {.size = sizeof ledger};
        tarn_stats stats = {.size = sizeof stats};
        SURE(tarn_device_synchronize, device); /* for marks of streams that were found */
        SURE(tarn_device_trim, device, 0);
        MINE(machine->ledger_get(device, &ledger));
        MINE(tarn_device_stats_get(device, &stats));
        SO(ledger.created == 0 && ledger.mapped == 0 && ledger.mappings == 0, "memory is left",
           "device %d: %" PRIu64 " bytes created, %" PRIu64 " mapped; %" PRId64 " reported", device,
           ledger.created, ledger.mapped, stats.reserved_bytes[0].current);
#define X(name)                                                                    \
    for (int class = 0; class < TARN_STAT_CLASSES; class ++)                       \
        SO(stats.name[class].current == 0, "a counter is left", #name " %" PRId64, \
           stats.name[class].current);
        TARN_STATS_CLASS_LIST(X)
#undef X
    }
}

static void finish(void)
{
    m.inject = 0;
    m.actor = -1;
    owner_return();
    captures_end();
    (void)wait_for_all();
    kept_sides_end();
    shares_end();
    sleeps_end(true);
    ranges_end();
    asks_end();
    blocks_end();
    actors_end();
    handles_let_go();
    pools_make_room();
    sleeps_end(false);
    pools_end();
    kept_end();
    pinned_end();
    handles_end();
    (void)wait_for_all();
    streams_end();
    nothing_left();
    kept_check_none();
}

static void counts_tell(void)
{
    told->allocations = m.count.allocations;
    told->shortages = m.count.shortages;
    told->injected = m.count.injected;
    told->launches = m.count.launches;
    told->suspends = m.count.suspends;
    told->restores = m.count.restores;
    told->workspaces = m.count.workspaces;
    told->checks = m.count.checks;
    told->sleeps = m.count.sleeps;
    told->shares = m.count.shares;
    told->planned = requests_planned();
    told->adoptions = m.count.adoptions;
    told->finds = m.count.finds;
    told->owners = m.count.owners;
    told->losses = m.count.losses;
}

_Noreturn static void run(uint64_t seed, const struct step *steps, int count)
{
    m.seed = seed;
    m.steps = count;
    m.actor = -1;
    base_begin();
    configure(seed);
    streams_begin();
    handles_begin();
    actors_begin();
    for (m.step = 0; m.step < count; m.step++) {
        told->step = m.step;
        step_run(&steps[m.step]);
        if (m.idle && m.step % 3 == 0)
            idle_look();
        check_pending();
        if (m.step % 8 == 0 || count < 200 || getenv("TARN_MIXED_SHOW")) {
            check_owners();
            check_ledgers();
        }
        if (m.pending_count > SLOTS / 3)
            (void)wait_for_all();
    }
    told->step = count;
    if (m.owner && seed % 3 == 0) {
        owner_return();
        kept_note(told->heirs);
        told->dies = true;
        counts_tell();
        (void)raise(SIGKILL);
    }
    finish();
    run_over();
}

void run_over(void)
{
    counts_tell();
    told->over = true;
    _exit(0);
}

/* The end of a child, as waitpid() says. With a seed it is a run; otherwise it takes over what one
 * has left. */
static int child_end(const uint64_t *seed, const struct step *steps, int count)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        if (seed)
            run(*seed, steps, count);
        heirs_check(told->heirs);
        told->over = true;
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(2);
    return status;
}

/* True if the run succeeded. Otherwise `told` says what was wrong. */
static bool run_in_child(uint64_t seed, const struct step *steps, int count)
{
    memset(told, 0, sizeof *told);
    m.service = seed / 2 % 2;
    m.owner = owner_begin("mixed", m.service);
    int status = child_end(&seed, steps, count);
    if (told->dies && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        status = child_end(NULL, NULL, 0);
    owner_end();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && told->over)
        return true;
    if (!told->what[0])
        snprintf(told->what, sizeof told->what,
                 WIFSIGNALED(status) ? "signal %d" : "exit status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

/* ---- Shortening ---- */

/* True if `told` has the wanted kind of fault and, if a call was at fault, the same call. */
static bool is_same(const struct told *wanted)
{
    const char *gave = strstr(wanted->text, " gave ");
    size_t length = gave ? strcspn(gave, ":") + (size_t)(gave - wanted->text) : 0;
    return strcmp(told->what, wanted->what) == 0 && strncmp(told->text, wanted->text, length) == 0;
}

/* Leaves out parts of the list, larger ones first, as long as it fails in the same way. */
static int shorten(uint64_t seed, struct step *steps, int count)
{
    struct step *less = malloc((size_t)count * sizeof *less);
    struct told wanted = *told;
    time_t until = time(NULL) + 90;
    if (told->step < count)
        count = told->step + 1;
    for (int part = count / 2; part > 0 && time(NULL) < until;) {
        bool shorter = false;
        for (int at = 0; at < count && time(NULL) < until;) {
            int without = count - at < part ? count - at : part;
            memcpy(less, steps, (size_t)at * sizeof *steps);
            memcpy(less + at, steps + at + without, (size_t)(count - at - without) * sizeof *steps);
            if (!run_in_child(seed, less, count - without) && is_same(&wanted)) {
                int shorter_count = count - without;
                if (told->step < shorter_count)
                    shorter_count = told->step + 1;
                memcpy(steps, less, (size_t)shorter_count * sizeof *steps);
                count = shorter_count;
                shorter = true;
            } else {
                at += part;
            }
        }
        if (part == 1 && !shorter)
            break;
        if (!shorter || part > 1)
            part = part > 1 ? part / 2 : 1;
    }
    free(less);
    return count;
}

static void report(uint64_t seed, struct step *steps, int count, bool shortens)
{
    char path[64];
    printf("seed %" PRIu64 ", step %d: %s: %s\n", seed, told->step, told->what, told->text);
    fflush(stdout);
    if (shortens) {
        count = shorten(seed, steps, count);
        (void)run_in_child(seed, steps, count);
    }
    snprintf(path, sizeof path, "mixed-%" PRIu64 ".steps", seed);
    FILE *file = fopen(path, "w");
    printf("%d operations give: %s: %s\n", count, told->what, told->text);
    for (int i = 0; i < count && count <= 60; i++)
        printf("  %d %s\n", i, operations[steps[i].operation]->name);
    if (!file)
        return;
    fprintf(file, "seed %" PRIu64 "\n", seed);
    for (int i = 0; i < count; i++)
        fprintf(file, "%016" PRIx64 " %s\n", steps[i].word, operations[steps[i].operation]->name);
    fclose(file);
    printf("again: %s --replay %s\n", "mixed.model", path);
}

static int replay_read(const char *path, uint64_t *seed, struct step *steps)
{
    FILE *file = fopen(path, "r");
    char line[256];
    int count = 0;
    if (!file || !fgets(line, sizeof line, file) || sscanf(line, "seed %" SCNu64, seed) != 1) {
        fprintf(stderr, "%s: no list of operations\n", path);
        exit(2);
    }
    while (count < STEPS_MOST && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; i < operation_count; i++)
            if (strlen(line) > 17 && strcmp(line + 17, operations[i]->name) == 0)
                steps[count++] = (struct step){i, strtoull(line, NULL, 16)};
    }
    fclose(file);
    return count;
}

/* ---- The whole ---- */

static const char *option(int count, char **list, const char *name, const char *variable)
{
    for (int i = 1; i + 1 < count; i++)
        if (strcmp(list[i], name) == 0)
            return list[i + 1];
    return variable ? getenv(variable) : NULL;
}

static bool try(uint64_t seed, struct step *steps, int count, bool shortens)
{
    bool good = run_in_child(seed, steps, count);
    if (good)
        printf(
            "seed %" PRIu64 ": %d steps, %" PRIu64 " allocations, %" PRIu64
            " out of memory, %" PRIu64 " with failures, %" PRIu64 " launches, %" PRIu64
            " suspends, %" PRIu64 " restores, %" PRIu64 " workspaces, %" PRIu64 " sleeps, %" PRIu64
            " shares, %" PRIu64 " contents, %" PRIu64 " as planned, %" PRIu64 " adoptions, %" PRIu64
            " sealed blocks found, %" PRIu64 " owners killed, %" PRIu64 " pools lost\n",
            seed, told->step, told->allocations, told->shortages, told->injected, told->launches,
            told->suspends, told->restores, told->workspaces, told->sleeps, told->shares,
            told->checks, told->planned, told->adoptions, told->finds, told->owners, told->losses);
    else
        report(seed, steps, count, shortens);
    fflush(stdout);
    return good;
}

/* Makes the addresses the same in each run, so that faults that depend on their order are found
 * again. */
static void addresses_fix(char **arguments)
{
    int persona = personality(0xffffffff);
    if (persona < 0 || (persona & ADDR_NO_RANDOMIZE) ||
        personality((unsigned long)persona | ADDR_NO_RANDOMIZE) < 0)
        return;
    (void)execv("/proc/self/exe", arguments);
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argument_count, char **arguments)
{
    if (side_play(argument_count, arguments))
        return 0;
    addresses_fix(arguments);
    const char *seed = option(argument_count, arguments, "--seed", "TARN_SEED"),
               *length = option(argument_count, arguments, "--steps", "TARN_MODEL_STEPS"),
               *time_limit = option(argument_count, arguments, "--seconds", NULL),
               *replay = option(argument_count, arguments, "--replay", NULL);
    bool shortens = true;
    for (int i = 1; i < argument_count; i++)
        shortens &= strcmp(arguments[i], "--no-shorten") != 0;
    int count = length ? atoi(length) : 3000;
    double end = seconds() + (time_limit ? atof(time_limit) : 0);
    count = count > STEPS_MOST ? STEPS_MOST : count;
    struct step *steps = malloc(STEPS_MOST * sizeof *steps);
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!steps || told == MAP_FAILED)
        return 2;
    operations_list();
    promises_read();
    uint64_t first = seed         ? strtoull(seed, NULL, 0)
                     : time_limit ? (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid()
                                  : 1;
    bool holds = true;
    if (replay) {
        count = replay_read(replay, &first, steps);
        holds = try(first, steps, count, false);
    }
    const char *wanted = getenv("TARN_MIXED_SEEDS");
    uint64_t planned = 0, seeds = seed ? 1 : wanted ? strtoull(wanted, NULL, 10) : 6;
    for (uint64_t i = 0; !replay && holds && (i < seeds || seconds() < end); i++) {
        steps_make(first + i, steps, count);
        holds = try(first + i, steps, count, shortens);
        planned += told->planned;
    }
    if (getenv("TARN_MIXED_PLAN") && holds && !replay && count >= 1000 && planned < 20) {
        printf("%" PRIu64 " requests were where the plan has them\n", planned);
        holds = false;
    }
    free(steps);
    return !holds;
}
