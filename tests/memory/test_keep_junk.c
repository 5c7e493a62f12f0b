/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Clients that ask the owner of kept pools for what they should not, and an owner or a process that
 * has no descriptors left, or no time. Nobody waits for the others, and what was sealed stays. */
#include "keep_message.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#include <cmocka.h>

static unsigned files_of_owner(void)
{
    char command[100], text[32] = "";
    snprintf(command, sizeof command, "ls /proc/%d/fd | wc -l", (int)owner);
    FILE *out = popen(command, "r");
    CHECK(out && fgets(text, sizeof text, out) && pclose(out) == 0);
    return (unsigned)atoi(text);
}

/* Waits until the owner has noticed that connections have ended. */
static void owner_has_files(unsigned count)
{
    for (int i = 0; i < 2000 && files_of_owner() != count; i++)
        usleep(5000);
    CHECK(files_of_owner() == count);
}

/* A request that may be well formed, or nearly so, or not at all. */
static void make_junk(struct message *message)
{
    static const char *const names[] = {"", "a", "b", "a\033[2J\n", "\xff\xfe", "weightsy"};
    message->said = keep_message((enum keep_verb)pick(KEEP_REFUSED + 3));
    message->size = sizeof message->said;
    message->count = 0;
    strncpy(message->said.name, names[pick(6)], sizeof message->said.name - 1);
    message->said.count = pick(3) ? pick(3) : pick(100);
    memset(message->said.device, '\r', pick(30));
    for (unsigned i = 0; i < 2; i++)
        message->said.segments[i] = (struct keep_segment){
            pick(3) ? pick(20) * 2 * MIB : random_next(&random_state),
            pick(3) ? pick(4) * 2 * MIB : random_next(&random_state), pick(4)};
    if (pick(2))
        close(add_pipe(message));
    for (unsigned i = pick(3) ? pick(2) : pick(40); i > 0; i--)
        add_file(message);
    if (!pick(8))
        be_noise(message);
    if (!pick(8))
        flip_bits(message);
    if (!pick(8))
        message->size = pick(BYTES) + 1;
}

static void ask_for_junk(void)
{
    struct message message = {.size = 0};
    int count = getenv("TARN_NIGHTLY") ? 100000 : 4000, server = -1;
    for (int i = 0; i < count; i++) {
        if (server < 0 || !pick(30)) {
            if (server >= 0)
                close(server);
            server = wire_connect(keep_path);
        }
        make_junk(&message);
        bool sent = server >= 0 && put(server, &message, MSG_DONTWAIT);
        close_files(&message);
        while (sent && pick(4) && recv(server, message.bytes, BYTES, MSG_DONTWAIT) > 0)
            ;
        if (!sent && server >= 0) {
            close(server);
            server = -1;
        }
    }
}

/* Also pools of names that a flipped bit has made. */
static void drop_all_but_weights(void)
{
    int server = wire_connect(keep_path);
    CHECK(server >= 0);
    struct message list = {.said = keep_message(KEEP_LIST), .size = sizeof list.said}, pool;
    while (put(server, &list, 0) && get(server, &pool) && pool.said.verb == KEEP_GIVES) {
        memcpy(list.said.name, pool.said.name, sizeof list.said.name);
        pool.said.verb = KEEP_DROP;
        if (strcmp(pool.said.name, "weights") != 0)
            CHECK(put(server, &pool, 0) && get(server, &pool));
    }
    CHECK(pool.said.verb == KEEP_OK);
    close(server);
}

/* The owner may not have come to all of the junk yet. */
static void drop_until_owner_has_files(unsigned count)
{
    for (int i = 0; i < 2000 && files_of_owner() != count; i++) {
        drop_all_but_weights();
        usleep(5000);
    }
    CHECK(files_of_owner() == count);
}

static void junk_leaves_the_owner_as_it_was(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    kill_side(filled(&told));
    int server = wire_connect(keep_path);
    struct message dirty = {.said = keep_message(KEEP_CREATE), .size = sizeof dirty.said};
    memcpy(dirty.said.name, "\xff\033[2Jz", 6);
    CHECK(put(server, &dirty, 0) && get(server, &dirty) && dirty.said.verb == KEEP_REFUSED);
    CHECK(strstr(dirty.said.text, "of a pipe"));
    unsigned before = files_of_owner() - 1; /* it has noticed that the process has ended */
    dirty.said = keep_message(KEEP_CREATE);
    memcpy(dirty.said.name, "\xff\033[2Jz", 6);
    int held = add_pipe(&dirty), seen = dirty.files[0];
    CHECK(put(server, &dirty, 0) && get(server, &dirty) && dirty.said.verb == KEEP_GIVES);
    CHECK(lines_of_list("") == 2 && lines_of_list("--json") > 2);
    dirty.said = keep_message(KEEP_END);
    close_files(&dirty);
    CHECK(put(server, &dirty, 0) && get(server, &dirty));
    close(server);
    close(held);
    close(seen);
    in_child(ask_for_junk);
    CHECK(lines_of_list("--json") > 2);
    drop_until_owner_has_files(before);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    end_pool(pool);
}

static void leave_odd_pool(void)
{
    int server = wire_connect(keep_path);
    struct message odd = {.said = keep_message(KEEP_CREATE), .size = sizeof odd.said};
    strncpy(odd.said.name, getenv("ODD"), sizeof odd.said.name - 1);
    (void)add_pipe(&odd);
    CHECK(put(server, &odd, 0) && get(server, &odd) && odd.said.verb == KEEP_GIVES);
}

/* A name that a terminal does not get, and JSON gives as it is: it drops the pool. */
static void json_has_names_as_they_are(void **state)
{
    (void)state;
    static const char drop[] = "\"$TARN_PROGRAM\" keep --socket $TARN_KEEP --drop \"$ODD\"";
    CHECK(setenv("ODD", "a\001\n\"\\ \xc3\xa9\x7f", 1) == 0);
    in_child(leave_odd_pool);
    CHECK(lines_of_list("| grep -F 'a??\"\\ \xc3\xa9? '") == 1 && lines_of_list("") == 1);
    CHECK(lines_of_list("--json | grep -F '\"a\\u0001\\n\\\"\\\\ \\u00E9\\u007F\"'") == 1);
    CHECK(system(drop) == 0 && lines_of_list("| grep '^no pools$'") == 1);
}

static void complain_to_the_reader(void)
{
    CHECK(dup2(STDOUT_FILENO, STDERR_FILENO) == STDERR_FILENO);
}

/* Nobody reads any more what the owner has to say, here that a pool counts in no group. */
static void an_owner_outlives_the_reader_of_its_messages(void **state)
{
    (void)state;
    end_owner(SIGTERM);
    owner = start_listening((char *[]){getenv("TARN_PROGRAM"), "keep", "--socket", keep_path, NULL},
                            complain_to_the_reader);
    int server = wire_connect(keep_path);
    struct message message = {.said = keep_message(KEEP_CREATE), .size = sizeof message.said};
    strcpy(message.said.name, "a");
    strcpy(message.said.text, "/nowhere");
    int held = add_pipe(&message), seen = message.files[0];
    CHECK(put(server, &message, 0) && get(server, &message) && message.said.verb == KEEP_GIVES);
    close_files(&message);
    close(server);
    close(held);
    close(seen);
    CHECK(lines_of_list("| grep ^a") == 1);
}

/* A socket that was removed is made again by another owner, which is there after the first ends. */
static void an_owner_removes_its_own_socket_alone(void **state)
{
    (void)state;
    pid_t first = owner;
    CHECK(unlink(keep_path) == 0);
    start_owner();
    CHECK(kill(first, SIGTERM) == 0 && waitpid(first, NULL, 0) == first);
    CHECK(lines_of_list("") == 1);
}

/* A path of almost as many bytes as can be, by a link to another file system. */
static void an_owner_replaces_a_socket_with_a_long_path(void **state)
{
    (void)state;
    char folder[40], link[100], before[100];
    snprintf(folder, sizeof folder, "/dev/shm/tarn-junk-%d", (int)getpid());
    snprintf(link, sizeof link, "/tmp/%090d", (int)getpid());
    CHECK(mkdir(folder, 0700) == 0 && symlink(folder, link) == 0);
    end_owner(SIGTERM);
    strcpy(before, keep_path);
    snprintf(keep_path, sizeof keep_path, "%.95s/s", link);
    start_owner();
    end_owner(SIGKILL);
    start_owner();
    CHECK(lines_of_list("") == 1);
    end_owner(SIGTERM);
    strcpy(keep_path, before);
    start_owner();
    CHECK(unlink(link) == 0 && rmdir(folder) == 0);
}

static bool is_answered(int server, struct message *message, enum keep_verb verb)
{
    bool answered = put(server, message, 0) && get(server, message);
    close_files(message);
    return answered && message->said.verb == verb;
}

/* Says that a reader has so many segments of 1 MiB, and no others in a part of the pool. */
static bool claims(int server, unsigned from, unsigned to, unsigned count, unsigned first)
{
    struct message message = {.said = keep_message(KEEP_HAS), .size = sizeof message.said};
    message.said.from = from * MIB;
    message.said.to = to * MIB;
    message.said.count = count;
    for (unsigned i = 0; i < count && i < KEEP_BATCH; i++)
        message.said.segments[i] = (struct keep_segment){(first + i) * MIB, MIB, 1000 + first + i};
    CHECK(put(server, &message, 0) && get(server, &message));
    CHECK(message.said.verb == KEEP_OK || message.said.verb == KEEP_REFUSED);
    return message.said.verb == KEEP_OK;
}

static void begin_to_read(int server)
{
    struct message message = {.said = keep_message(KEEP_LIST), .size = sizeof message.said};
    CHECK(is_answered(server, &message, KEEP_GIVES));
    unsigned segments = message.said.count;
    message.said.verb = KEEP_READ;
    message.said.from = message.said.to = 0;
    CHECK(is_answered(server, &message, KEEP_GIVES));
    for (unsigned i = 0; i < segments; i += KEEP_BATCH) {
        CHECK(get(server, &message) && message.said.verb == KEEP_SEGMENTS);
        close_files(&message);
    }
}

/* A reader may have no more than a reader can have, and has it as long as it is connected. */
static void a_reader_that_lies_is_forgotten(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    unsigned at = 64;
    kill_side(filled(&told));
    int server = wire_connect(keep_path);
    CHECK(server >= 0 && !claims(server, 0, 8, 1, 0)); /* it reads nothing */
    unsigned before = files_of_owner() - 1;
    begin_to_read(server);
    CHECK(claims(server, 0, 64, 8, 3) && lines_of_list("| grep ', 8[.]0.* MiB linger'") == 1);
    CHECK(claims(server, 0, 64, 2, 3) && lines_of_list("| grep ', 2[.]0.* MiB linger'") == 1);
    CHECK(!claims(server, 0, 64, KEEP_BATCH + 1, 0) && !claims(server, 0, 8, 1, 8));
    while (at < 100000 && claims(server, at, at + 8, 8, at))
        at += 8;
    CHECK(at > KEEP_SEGMENTS_MOST && at <= 2 * KEEP_SEGMENTS_MOST + 64);
    close(server);
    owner_has_files(before);
    CHECK(lines_of_list("| sed '/linger/!d'") == 0);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    end_pool(pool);
}

static double seconds_of_list(void)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    CHECK(lines_of_list("") >= 1);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
}

/* Connections that ask and never read, and more of them than the owner serves. */
static void clients_that_do_not_read_make_nobody_wait(void **state)
{
    (void)state;
    enum { MANY = 300 };
    int servers[MANY];
    struct message list = {.said = keep_message(KEEP_LIST), .size = sizeof list.said};
    unsigned before = files_of_owner();
    for (int i = 0; i < MANY; i++) {
        servers[i] = wire_connect(keep_path);
        CHECK(servers[i] >= 0);
        for (int j = 0; j < 400 && put(servers[i], &list, MSG_DONTWAIT); j++)
            ;
    }
    CHECK(seconds_of_list() < 20); /* a second for each, if the owner waited for them */
    for (int i = 0; i < MANY; i++)
        close(servers[i]);
    owner_has_files(before);
}

static double seconds_of_owner(void)
{
    char path[64];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)owner);
    FILE *file = fopen(path, "re");
    CHECK(file && fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                         &system) == 2);
    CHECK(fclose(file) == 0);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* The number that the owner's next file gets, or the one after so many others. */
static unsigned number_after(unsigned others)
{
    char path[64], name[8];
    for (unsigned number = 0;; number++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%u", (int)owner, number);
        if (readlink(path, name, sizeof name) < 0 && others-- == 0)
            return number;
    }
}

static void let_owner_have(unsigned files)
{
    struct rlimit limit;
    CHECK(prlimit(owner, RLIMIT_NOFILE, NULL, &limit) == 0);
    limit.rlim_cur = files;
    CHECK(prlimit(owner, RLIMIT_NOFILE, &limit, NULL) == 0);
}

/* An owner without descriptors refuses what needs one, says why, and goes on. */
static void an_owner_without_descriptors_says_so(void **state)
{
    (void)state;
    tarn_kept kept;
    void *none = NULL;
    tarn_pool *pool = keep("weights", &kept);
    void *block = alloc_in(pool, 0, MIB);
    let_owner_have(number_after(0));
    GIVES(tarn_pool_alloc(pool, 0, 30 * MIB, &none), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "no file descriptors left"));
    int server = wire_connect(keep_path); /* it has no descriptor for this one either */
    CHECK(server >= 0);
    char byte;
    CHECK(recv(server, &byte, 1, 0) == 0);
    close(server);
    double before = seconds_of_owner();
    usleep(300000);
    CHECK(seconds_of_owner() - before < 0.15);
    let_owner_have(1000);
    void *more = alloc_in(pool, 0, 30 * MIB);
    OK(tarn_free(more));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* A new pool takes a connection, the pipe, a layout, the process, and an open file of the pipe that
 * is the pool's own. Wherever they end, nobody has a pool. */
static void a_pool_that_is_refused_is_none(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_pool *pool = NULL;
    tarn_keep_options options = small_segments();
    unsigned limits[6];
    for (unsigned most = 1; most < 6; most++)
        limits[most] = number_after(most);
    for (unsigned most = 1; most < 5; most++) {
        let_owner_have(limits[most]);
        GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_SYSTEM);
        CHECK(strstr(tarn_last_error(),
                     most == 2 ? "no file, for its layout" : "no file descriptors left"));
        let_owner_have(1000);
        CHECK(lines_of_list("| sed '/^no pools$/d'") == 0);
    }
    let_owner_have(limits[5]);
    pool = keep("weights", &kept);
    CHECK(!kept.adopted);
    let_owner_have(1000);
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* This process has none left for what the owner gives. */
static void a_process_without_descriptors_says_so(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    tarn_pool *pool = NULL;
    struct rlimit before, little;
    kill_side(filled(&told));
    tarn_keep_options options = small_segments();
    options.wait_ms = 20000;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    little = before;
    int lowest = dup(STDERR_FILENO);
    CHECK(lowest >= 0 && close(lowest) == 0);
    little.rlim_cur = (rlim_t)lowest + 1; /* the connection, and not the file of a pool */
    CHECK(setrlimit(RLIMIT_NOFILE, &little) == 0);
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_SYSTEM);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(strstr(tarn_last_error(), "ulimit -n"));
    pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    end_pool(pool);
}

static void an_owner_that_does_not_answer_is_given_up(void **state)
{
    (void)state;
    tarn_kept kept;
    void *none = NULL;
    tarn_pool *pool = keep("weights", &kept), *other = NULL;
    tarn_keep_options options = small_segments();
    void *block = alloc_in(pool, 0, MIB);
    wire_patience_ms = PATIENCE_MS;
    OK(tarn_pool_release(keep("short", &kept))); /* its connection has the new patience */
    CHECK(kill(owner, SIGSTOP) == 0);
    GIVES(tarn_pool_keep("other", &options, &other, NULL), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "does not answer"));
    CHECK(kill(owner, SIGCONT) == 0);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    pool = keep("weights", &kept);
    block = alloc_in(pool, 0, MIB);
    CHECK(kill(owner, SIGSTOP) == 0);
    GIVES(tarn_pool_alloc(pool, 0, 30 * MIB, &none), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "does not answer"));
    CHECK(kill(owner, SIGCONT) == 0);
    wire_patience_ms = 10000;
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static volatile sig_atomic_t ticks_left = 400;

static void tick(int number)
{
    const struct itimerval none = {{0, 0}, {0, 0}};
    (void)number;
    if (--ticks_left <= 0)
        (void)setitimer(ITIMER_REAL, &none, NULL);
}

/* Signals that come more often than the time limit ends do not make the wait for it longer. */
static void signals_give_a_silent_owner_no_more_time(void **state)
{
    (void)state;
    const struct itimerval often = {{0, 10000}, {0, 10000}};
    struct itimerval left;
    const struct sigaction action = {.sa_handler = tick}, normal = {.sa_handler = SIG_DFL};
    tarn_keep_options options = small_segments();
    tarn_pool *none = NULL;
    wire_patience_ms = PATIENCE_MS;
    CHECK(kill(owner, SIGSTOP) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    double began = now();
    tarn_status status = tarn_pool_keep("weights", &options, &none, NULL);
    double took = now() - began;
    ticks_left = 0;
    while (getitimer(ITIMER_REAL, &left) == 0 && left.it_interval.tv_usec)
        usleep(10000);
    CHECK(kill(owner, SIGCONT) == 0 && sigaction(SIGALRM, &normal, NULL) == 0);
    CHECK(took < 2 && status == TARN_ERROR_SYSTEM && strstr(tarn_last_error(), "does not answer"));
    wire_patience_ms = 10000;
}

/* A reader waits for a silent owner in a trim alone, once, and asks it again when it answers. */
static void a_silent_owner_makes_no_find_of_a_reader_wait(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    tarn_pool *reader = NULL;
    tarn_keep_options options = small_segments();
    struct side side = filled(&told);
    options.read = true;
    wire_patience_ms = 8 * PATIENCE_MS;
    OK(tarn_pool_keep("weights", &options, &reader, NULL));
    kill_side(side);
    tarn_pool *pool = keep("weights", &kept);
    OK(tarn_free(found(pool, "second").pointer));
    OK(tarn_pool_trim(pool, 0)); /* what it gave up lingers with the reader */
    CHECK(kill(owner, SIGSTOP) == 0);
    double began = now();
    CHECK(holds(found(reader, "first").pointer, 3 * MIB, 3) && now() - began < 1);
    began = now();
    OK(tarn_pool_trim(reader, 0));
    CHECK(now() - began < 4);
    CHECK(kill(owner, SIGCONT) == 0);
    OK(tarn_pool_trim(reader, 0));
    CHECK(lines_of_list("| grep ', 1 read it' | sed '/linger/d'") == 1);
    wire_patience_ms = 10000;
    OK(tarn_pool_release(reader));
    OK(tarn_free(found(pool, "first").pointer));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* ---- An owner of another user ---- */

enum { USER = 65533, OTHER_USER = 65534 };

static char path_of_user[64];

static void connect_as_other_user(void)
{
    CHECK(setuid(OTHER_USER) == 0);
    CHECK(wire_connect(path_of_user) < 0 && errno == EPERM);
}

static void connect_as_same_user(void)
{
    CHECK(setuid(USER) == 0);
    int server = wire_connect(path_of_user);
    CHECK(server >= 0 && close(server) == 0);
}

static void listen_and_wait(int told)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, path_of_user);
    CHECK(setuid(USER) == 0);
    int file = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(bind(file, (struct sockaddr *)&name, sizeof name) == 0 && listen(file, 8) == 0);
    CHECK(chmod(path_of_user, 0666) == 0 && write(told, "", 1) == 1);
    for (;;)
        pause();
}

/* Whoever makes a socket where an owner is expected gets no pools of others. */
static void an_owner_of_another_user_is_refused(void **state)
{
    (void)state;
    int ends[2];
    char byte;
    if (geteuid() != 0)
        skip(); /* only root can be another user */
    snprintf(path_of_user, sizeof path_of_user, "/tmp/tarn-user-%d", (int)getpid());
    CHECK(pipe(ends) == 0);
    pid_t listener = fork();
    if (listener == 0)
        listen_and_wait(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 1);
    in_child(connect_as_other_user);
    in_child(connect_as_same_user);
    int server = wire_connect(path_of_user); /* root */
    CHECK(server >= 0 && close(server) == 0);
    CHECK(kill(listener, SIGKILL) == 0 && waitpid(listener, NULL, 0) == listener);
    CHECK(unlink(path_of_user) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* ---- The test ---- */

static int prepare(void **state)
{
    (void)state;
    host_start_with(1, 256 * MIB);
    keep_name_socket("keep-junk");
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, owner_begins, owner_ends)

int main(int argc, char **argv)
{
    if (argc == 3) {
        host_start_with(1, 256 * MIB);
        fill_and_wait(atoi(argv[2]));
        return 0;
    }
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        TEST(junk_leaves_the_owner_as_it_was),
        TEST(json_has_names_as_they_are),
        TEST(an_owner_outlives_the_reader_of_its_messages),
        TEST(an_owner_removes_its_own_socket_alone),
        TEST(an_owner_replaces_a_socket_with_a_long_path),
        TEST(a_reader_that_lies_is_forgotten),
        TEST(clients_that_do_not_read_make_nobody_wait),
        TEST(an_owner_without_descriptors_says_so),
        TEST(a_pool_that_is_refused_is_none),
        TEST(a_process_without_descriptors_says_so),
        TEST(an_owner_that_does_not_answer_is_given_up),
        TEST(signals_give_a_silent_owner_no_more_time),
        TEST(a_silent_owner_makes_no_find_of_a_reader_wait),
        cmocka_unit_test(an_owner_of_another_user_is_refused),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
