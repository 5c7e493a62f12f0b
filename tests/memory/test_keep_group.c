/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools in a group of `tarn run`: their memory counts there once, by whoever of the process
 * and the owner lives. Processes run under `tarn run`, except on the host device, which it does not
 * see. */
#include "group_test.h"
#include "keep_generations.h"
#include "keep_manager.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LIMIT_MIB 200
#define DEVICE_BYTES (512 * MIB)

static char own_path[300];

static bool has_shim(void)
{
    const char *named = getenv("TARN_DRIVER");
    return named && strcmp(named, "host") != 0;
}

/* Waits until the group has these bytes, and never fewer before. */
static void comes_to(uint64_t bytes)
{
    for (int i = 0; i < 600; i++) {
        struct group_sum sum = group_look();
        CHECK(sum.used + sum.pending >= bytes);
        if (sum.used == bytes && !sum.pending)
            return;
        usleep(5000);
    }
    CHECK(group_look().used == bytes);
}

/* ---- Processes ---- */

struct member {
    struct side side;
    pid_t process; /* which `tarn run` started */
};

/* Starts this program in a role, in the group if `grouped`. */
static struct member start_member(const char *role, bool grouped)
{
    int ends[2];
    char number[16], group[60], limit[30];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    snprintf(number, sizeof number, "%d", ends[1]);
    snprintf(group, sizeof group, "--group=%s", group_name);
    snprintf(limit, sizeof limit, "--limit=%dM", LIMIT_MIB);
    fflush(NULL);
    struct member member = {{.process = fork(), .socket = ends[0]}, 0};
    CHECK(member.side.process >= 0);
    if (member.side.process == 0) {
        (void)fcntl(ends[1], F_SETFD, 0);
        if (grouped && !has_shim())
            setenv("TARN_RUN_GROUP", group_path, 1);
        if (grouped && has_shim())
            execl(getenv("TARN_PROGRAM"), "tarn", "run", "--quiet", group, limit, own_path, role,
                  number, (char *)NULL);
        else
            execl(own_path, "side", role, number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    receive_all(member.side.socket, &member.process, sizeof member.process);
    return member;
}

/* The group never has fewer bytes meanwhile. */
static void kill_member(struct member member, uint64_t bytes)
{
    CHECK(kill(member.process, SIGKILL) == 0);
    for (int i = 0; i < 200; i++) {
        struct group_sum sum = group_look();
        CHECK(sum.used + sum.pending >= bytes);
    }
    end_side(member.side, 128 + SIGKILL);
}

static uint64_t reserved_by(struct member member)
{
    uint64_t bytes;
    receive_all(member.side.socket, &bytes, sizeof bytes);
    return bytes;
}

static void tell_reserved(int socket)
{
    uint64_t bytes = reserved();
    send_all(socket, &bytes, sizeof bytes);
}

static void tell_process(int socket)
{
    pid_t process = getpid();
    send_all(socket, &process, sizeof process);
}

static void fill_pool(int socket)
{
    tell_process(socket);
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    CHECK(!kept.adopted);
    char *first = alloc_in(pool, 0, 3 * MIB + 100), *second = alloc_in(pool, 0, 20 * MIB);
    fill(first, 3 * MIB, 3);
    fill(second, 20 * MIB, 9);
    OK(tarn_pool_block_seal(first, "first", NULL, NULL));
    OK(tarn_pool_block_seal(second, "second", NULL, NULL));
    tell_reserved(socket);
    hear(socket, 'e');
}

/* Takes the pool over; then does what it is told: grows it, shrinks it, or ends it. */
static void adopt_pool(int socket)
{
    tell_process(socket);
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.adopted && kept.blocks == 2 && both_are_whole(pool));
    void *more = NULL;
    tell_reserved(socket);
    for (char order; recv(socket, &order, 1, 0) == 1; tell_reserved(socket)) {
        if (order == 'g')
            more = alloc_in(pool, 0, 30 * MIB);
        if (order == 's') {
            OK(tarn_free(more));
            OK(tarn_pool_trim(pool, 0));
        }
        if (order == 'e')
            end_pool(pool);
    }
}

/* Reads the pool, and trims that as often as it is told. */
static void read_pool(int socket)
{
    tell_process(socket);
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    options.read = true;
    options.wait_ms = 10000;
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    CHECK(both_are_whole(pool));
    say(socket, 'd');
    for (char order; recv(socket, &order, 1, 0) == 1; say(socket, 'd'))
        OK(tarn_pool_trim(pool, 0));
}

static struct member start_reader(bool grouped)
{
    struct member reader = start_member("read", grouped);
    hear(reader.side.socket, 'd');
    return reader;
}

/* Asks for memory of its own, as much as it is told. */
static void take(int socket)
{
    tell_process(socket);
    unsigned mib;
    void *block = NULL;
    while (recv(socket, &mib, sizeof mib, MSG_WAITALL) == sizeof mib) {
        tarn_pool *pool = NULL;
        OK(tarn_pool_create(0, &pool));
        tarn_status status = tarn_pool_alloc(pool, 0, mib * MIB, &block);
        CHECK(!status || status == TARN_ERROR_OUT_OF_MEMORY);
        if (!status)
            OK(tarn_free(block));
        OK(tarn_pool_release(pool));
        OK(tarn_device_trim(0, 0));
        say(socket, status ? 'n' : 'y');
    }
}

/* Whether a process of the group gets this much, and gives it back. */
static bool gets(struct member taker, unsigned mib)
{
    char heard;
    send_all(taker.side.socket, &mib, sizeof mib);
    receive_all(taker.side.socket, &heard, 1);
    return heard == 'y';
}

/* The group has room for just what the pool leaves, in pieces of 2 MiB. */
static void leaves_room(uint64_t kept)
{
    if (!has_shim())
        return; /* nobody refuses a request of the host device */
    struct member taker = start_member("take", true);
    unsigned left = (unsigned)((LIMIT_MIB * MIB - kept) / MIB) / 2 * 2;
    CHECK(gets(taker, left));
    CHECK(!gets(taker, left + 2));
    end_side(taker.side, 0);
}

/* ---- Tests ---- */

static bool list_says(const char *what)
{
    char command[400];
    snprintf(command, sizeof command, "\"$TARN_PROGRAM\" %s | grep -q -- '%s'", what, group_name);
    return system(command) == 0;
}

static void kept_memory_counts_once_in_each_generation(void **state)
{
    (void)state;
    struct member member = start_member("fill", true);
    uint64_t bytes = reserved_by(member);
    CHECK(bytes >= 23 * MIB);
    comes_to(bytes);
    for (int i = 0; i < 10; i++) {
        kill_member(member, bytes);
        comes_to(bytes);
        if (i == 0)
            leaves_room(bytes);
        member = start_member("adopt", true);
        CHECK(reserved_by(member) == bytes);
        comes_to(bytes);
    }
    leaves_room(bytes);
    say(member.side.socket, 'g');
    CHECK(reserved_by(member) > bytes);
    CHECK(group_look().used == bytes + 30 * MIB);
    kill_member(member, bytes + 30 * MIB);
    comes_to(bytes + 30 * MIB);
    CHECK(list_says("keep --list") && list_says("keep --list --json") && list_says("top --once"));
    member = start_member("adopt", true);
    (void)reserved_by(member);
    say(member.side.socket, 'e');
    CHECK(reserved_by(member) == 0);
    comes_to(0);
    end_side(member.side, 0);
    CHECK(access(group_path, F_OK) != 0);
}

/* Has the process of the pool do something, and say how much it has then. */
static uint64_t left_after(struct member member, char order)
{
    say(member.side.socket, order);
    return reserved_by(member);
}

/* Memory that the pool gave up counts as long as a reader has it mapped: once, whoever reads. */
static void what_only_readers_have_counts_once(void **state)
{
    (void)state;
    struct member member = start_member("fill", true);
    (void)reserved_by(member);
    kill_member(member, 0);
    member = start_member("adopt", true);
    uint64_t bytes = reserved_by(member), more = bytes + 30 * MIB;
    CHECK(left_after(member, 'g') == more);
    struct member readers[] = {start_reader(true), start_reader(false)};
    comes_to(more);
    CHECK(left_after(member, 's') == bytes);
    comes_to(more);
    leaves_room(more);
    kill_member(readers[0], more);
    comes_to(more);
    say(readers[1].side.socket, 't');
    hear(readers[1].side.socket, 'd');
    comes_to(bytes);
    leaves_room(bytes);
    CHECK(left_after(member, 'e') == 0);
    end_side(member.side, 0);
    comes_to(bytes);
    CHECK(list_says("keep --list") && list_says("top --once"));
    kill_member(readers[1], 0);
    comes_to(0);
    for (int i = 0; i < 1000 && access(group_path, F_OK) == 0; i++)
        usleep(5000);
    CHECK(access(group_path, F_OK) != 0);
}

static void a_killed_owner_takes_nothing_from_the_count(void **state)
{
    (void)state;
    struct member member = start_member("fill", true);
    uint64_t bytes = reserved_by(member);
    kill_member(member, 0);
    member = start_member("adopt", true);
    CHECK(reserved_by(member) == bytes);
    end_owner(SIGKILL);
    if (has_shim())
        comes_to(bytes);
    leaves_room(bytes);
    start_owner();
    say(member.side.socket, 'g'); /* the new owner hears of the pool */
    bytes += 30 * MIB;
    CHECK(reserved_by(member) == bytes);
    comes_to(bytes);
    kill_member(member, 0);
    comes_to(bytes);
    leaves_room(bytes);
    end_owner(SIGKILL);
    CHECK(group_look().used == 0);
    (void)unlink(group_path);
    start_owner();
}

/* The owner of a service is killed, and the pool's process ends before the next owner begins. */
static void the_count_lasts_while_a_service_has_no_owner(void **state)
{
    (void)state;
    end_owner(SIGTERM);
    manager_begin();
    start_service();
    struct member member = start_member("fill", true);
    uint64_t bytes = reserved_by(member);
    for (int i = 0; i < 3; i++) {
        end_owner(SIGKILL);
        kill_member(member, bytes);
        comes_to(bytes);
        leaves_room(bytes);
        start_service();
        comes_to(bytes);
        leaves_room(bytes);
        member = start_member("adopt", true);
        CHECK(reserved_by(member) == bytes);
        comes_to(bytes);
    }
    say(member.side.socket, 'e');
    CHECK(reserved_by(member) == 0);
    comes_to(0);
    end_side(member.side, 0);
    CHECK(access(group_path, F_OK) != 0);
    end_owner(SIGTERM);
    manager_end();
    start_owner();
}

static void a_process_of_no_group_counts_in_the_owners(void **state)
{
    (void)state;
    struct member member = start_member("fill", true);
    uint64_t bytes = reserved_by(member);
    kill_member(member, 0);
    comes_to(bytes);
    member = start_member("adopt", false);
    CHECK(reserved_by(member) == bytes);
    CHECK(group_look().used == 0);
    kill_member(member, 0);
    CHECK(group_look().used == 0);
    CHECK(system("\"$TARN_PROGRAM\" keep --drop weights") == 0);
    end_owner(SIGTERM);
    setenv("TARN_RUN_GROUP", group_path, 1);
    start_owner();
    unsetenv("TARN_RUN_GROUP");
    member = start_member("fill", false);
    bytes = reserved_by(member);
    comes_to(bytes);
    kill_member(member, 0);
    comes_to(bytes);
    leaves_room(bytes);
    CHECK(system("\"$TARN_PROGRAM\" keep --drop weights") == 0);
    CHECK(group_look().used == 0);
    end_owner(SIGTERM);
    start_owner();
    CHECK(access(group_path, F_OK) != 0);
}

static int start(void **state)
{
    (void)state;
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    CHECK(length > 0);
    unsetenv("TARN_RUN_GROUP");
    group_choose("keep");
    keep_name_socket("keep-group");
    start_owner();
    return 0;
}

static void prepare_member(void)
{
    host_start_with(1, DEVICE_BYTES);
}

static const struct role roles[] = {
    {"fill", fill_pool}, {"adopt", adopt_pool}, {"read", read_pool}, {"take", take}, {NULL, NULL}};

int main(int argc, char **argv)
{
    if (role_play(argc, argv, prepare_member, roles))
        return 0;
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_memory_counts_once_in_each_generation),
        cmocka_unit_test(what_only_readers_have_counts_once),
        cmocka_unit_test(a_killed_owner_takes_nothing_from_the_count),
        cmocka_unit_test(the_count_lasts_while_a_service_has_no_owner),
        cmocka_unit_test(a_process_of_no_group_counts_in_the_owners),
    };
    return cmocka_run_group_tests(tests, start, owner_ends);
}
