/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whole pools between processes: this program runs itself again as the other side. Segments that
 * come while the pool is imported travel with an update; what is exported stays; a revocation, and
 * the death of either side, is seen by the other; and no file stays open. */
#include "memory/share/board.h"
#include "memory/share/share.h"
#include "share_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define BLOCK (40 * MIB) /* has a segment of its own */

static tarn_stream own;

static tarn_pool *registrable(int device)
{
    return pool_with((tarn_pool_options){.device = device, .registrable = true});
}

static tarn_share *pool_export(tarn_pool *pool, const tarn_share *before)
{
    tarn_share *share = NULL;
    OK(tarn_pool_export(pool, before, &share));
    CHECK(share != NULL);
    return share;
}

static tarn_imported_pool *pool_import(const tarn_share *share, int device)
{
    tarn_imported_pool *imported = NULL;
    OK(tarn_pool_import(share, device, &imported));
    CHECK(imported != NULL);
    return imported;
}

static char *local(tarn_imported_pool *imported, const void *address, size_t size)
{
    void *pointer = NULL;
    OK(tarn_imported_pool_find(imported, address, size, &pointer));
    return pointer;
}

static tarn_import_state state_of(tarn_imported_pool *imported)
{
    tarn_import_state state = (tarn_import_state)99;
    OK(tarn_imported_pool_state_get(imported, &state));
    return state;
}

static size_t importers(const tarn_share *share)
{
    tarn_share_info info = {.size = sizeof info, .importers = 99};
    OK(tarn_share_info_get(share, &info));
    return info.importers;
}

/* A share as it arrives. */
static tarn_share *sent(const tarn_share *share)
{
    int ends[2];
    tarn_share *received = NULL;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    OK(tarn_share_send(ends[0], share));
    OK(tarn_share_receive(ends[1], &received));
    close(ends[0]);
    close(ends[1]);
    return received;
}

static void tell(int socket, const void *address)
{
    CHECK(send(socket, &address, sizeof address, MSG_NOSIGNAL) == (ssize_t)sizeof address);
}

static void *told(int socket)
{
    void *address = NULL;
    CHECK(recv(socket, &address, sizeof address, MSG_WAITALL) == (ssize_t)sizeof address);
    return address;
}

static tarn_share *received_from(int socket)
{
    tarn_share *share = NULL;
    OK(tarn_share_receive(socket, &share));
    return share;
}

/* ---- The other side ---- */

/* Imports a pool, answers in its block, follows its growth until that is revoked. */
static void import_and_follow(int socket)
{
    tarn_share *share = received_from(socket);
    int files = open_files();
    tarn_imported_pool *imported = pool_import(share, 0);
    OK(tarn_share_close(share));
    CHECK(ledger_of(0).created == 0 && stats_of(0).reserved_bytes[0].current == 0);
    void *first = told(socket);
    char *seen = local(imported, first, BLOCK);
    CHECK(holds(seen, BLOCK, 5) && state_of(imported) == TARN_IMPORT_CURRENT);
    fill(seen, BLOCK, 9);
    say(socket, 'w');
    for (int i = 0; i < 3; i++) {
        void *more = told(socket), *none = NULL;
        CHECK(state_of(imported) == TARN_IMPORT_OUTDATED);
        GIVES(tarn_imported_pool_find(imported, more, BLOCK, &none), TARN_ERROR_INVALID_POINTER);
        share = received_from(socket);
        OK(tarn_imported_pool_update(imported, share));
        OK(tarn_share_close(share));
        CHECK(state_of(imported) == TARN_IMPORT_CURRENT && local(imported, first, BLOCK) == seen);
        CHECK(holds(local(imported, more, BLOCK), BLOCK, 20 + i) && holds(seen, BLOCK, 9));
        fill(local(imported, more, BLOCK), BLOCK, 30 + i);
        say(socket, 'w');
    }
    hear(socket, 'r');
    CHECK(state_of(imported) == TARN_IMPORT_REVOKED && holds(seen, BLOCK, 9));
    OK(tarn_imported_pool_close(imported));
    CHECK(open_files() <= files);
    nothing_is_left(0);
    say(socket, 'c');
    hear(socket, 'e');
}

static void import_and_die(int socket)
{
    tarn_share *share = received_from(socket);
    tarn_imported_pool *imported = pool_import(share, 0);
    fill(local(imported, told(socket), BLOCK), BLOCK, 9);
    say(socket, 'w');
    hear(socket, 'e');
    raise(SIGKILL);
}

static void export_and_die(int socket)
{
    tarn_pool *pool = registrable(0);
    char *block = alloc_in(pool, TARN_STREAM_LEGACY, BLOCK);
    fill(block, BLOCK, 5);
    OK(tarn_share_send(socket, pool_export(pool, NULL)));
    tell(socket, block);
    hear(socket, 'e');
    raise(SIGKILL);
}

/* Leaves a child behind that has what a child of fork() has, until the other side closes the
 * socket. */
static void fork_and_die(int socket)
{
    char word = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        say(socket, 'f'); /* by now it has done what it does at a fork */
        (void)recv(socket, &word, 1, 0);
        _exit(0);
    }
    raise(SIGKILL);
}

static void import_fork_and_die(int socket)
{
    tarn_share *share = received_from(socket);
    CHECK(pool_import(share, 0) != NULL);
    fork_and_die(socket);
}

static void export_fork_and_die(int socket)
{
    tarn_pool *pool = registrable(0);
    CHECK(alloc_in(pool, TARN_STREAM_LEGACY, BLOCK) != NULL);
    OK(tarn_share_send(socket, pool_export(pool, NULL)));
    fork_and_die(socket);
}

/* A share that came before tarn was used is the child's, too. */
static void receive_and_fork(int socket)
{
    int status = 0;
    tarn_share *share = received_from(socket);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        host_start_with(2, DEVICE);
        tarn_imported_pool *imported = pool_import(share, 0);
        CHECK(holds(local(imported, told(socket), BLOCK), BLOCK, 5));
        OK(tarn_imported_pool_close(imported));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(tarn_share_close(share));
}

static int play(const char *name, int socket)
{
    alarm(60);
    if (strcmp(name, "receive and fork") == 0) {
        receive_and_fork(socket);
        return 0;
    }
    host_start_with(2, DEVICE);
    if (strcmp(name, "follow") == 0)
        import_and_follow(socket);
    else if (strcmp(name, "import and die") == 0)
        import_and_die(socket);
    else if (strcmp(name, "import, fork and die") == 0)
        import_fork_and_die(socket);
    else if (strcmp(name, "export, fork and die") == 0)
        export_fork_and_die(socket);
    else
        export_and_die(socket);
    return 0;
}

/* ---- Between processes ---- */

static void a_pool_grows_while_it_is_imported(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        int files = open_files();
        struct side side = start_side("follow", type ? SOCK_STREAM : SOCK_SEQPACKET);
        tarn_pool *pool = registrable(0);
        char *blocks[4];
        blocks[0] = alloc_in(pool, own, BLOCK);
        fill(blocks[0], BLOCK, 5);
        tarn_share *share = pool_export(pool, NULL);
        CHECK(info_of(share).pieces == 1 && info_of(share).bytes >= BLOCK &&
              info_of(share).generation == 1);
        OK(tarn_share_send(side.socket, share));
        tell(side.socket, blocks[0]);
        hear(side.socket, 'w');
        CHECK(holds(blocks[0], BLOCK, 9) && importers(share) == 1);
        for (int i = 1; i < 4; i++) {
            blocks[i] = alloc_in(pool, own, BLOCK);
            fill(blocks[i], BLOCK, 20 + i - 1);
            tarn_share *next = pool_export(pool, share);
            CHECK(info_of(next).pieces == 1U + (unsigned)i &&
                  info_of(next).generation == 1U + (unsigned)i);
            OK(tarn_share_close(share));
            share = next;
            tell(side.socket, blocks[i]);
            OK(tarn_share_send(side.socket, share));
            hear(side.socket, 'w');
            CHECK(holds(blocks[i], BLOCK, 30 + i - 1));
        }
        CHECK(importers(share) == 1);
        OK(tarn_share_revoke(share));
        OK(tarn_share_revoke(share));
        say(side.socket, 'r');
        hear(side.socket, 'c');
        CHECK(importers(share) == 0);
        say(side.socket, 'e');
        end_side(side, 0);
        OK(tarn_share_close(share));
        for (int i = 0; i < 4; i++)
            OK(tarn_free(blocks[i]));
        OK(tarn_pool_release(pool));
        CHECK(open_files() <= files); /* pieces had files of their own */
        nothing_is_left(0);
    }
}

static void an_importer_that_is_killed_does_not_count(void **state)
{
    (void)state;
    struct side side = start_side("import and die", SOCK_STREAM);
    tarn_pool *pool = registrable(0);
    char *block = alloc_in(pool, own, BLOCK);
    tarn_share *share = pool_export(pool, NULL);
    CHECK(importers(share) == 0);
    OK(tarn_share_send(side.socket, share));
    tell(side.socket, block);
    hear(side.socket, 'w');
    CHECK(importers(share) == 1);
    tarn_imported_pool *here = pool_import(share, 1);
    CHECK(importers(share) == 2);
    say(side.socket, 'e');
    end_side(side, 128 + SIGKILL);
    CHECK(importers(share) == 1 && holds(block, BLOCK, 9));
    OK(tarn_imported_pool_close(here));
    CHECK(importers(share) == 0);
    OK(tarn_free(block));
    OK(tarn_pool_trim(pool, 0));
    CHECK(ledger_of(0).created > 0);
    OK(tarn_share_close(share));
    OK(tarn_pool_trim(pool, 0));
    CHECK(ledger_of(0).created == 0);
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    nothing_is_left(1);
}

static void an_exporter_that_is_killed_is_missed(void **state)
{
    (void)state;
    struct side side = start_side("export and die", SOCK_STREAM);
    tarn_share *share = received_from(side.socket);
    tarn_imported_pool *imported = pool_import(share, 0);
    char *block = local(imported, told(side.socket), BLOCK);
    CHECK(state_of(imported) == TARN_IMPORT_CURRENT);
    say(side.socket, 'e');
    end_side(side, 128 + SIGKILL);
    CHECK(state_of(imported) == TARN_IMPORT_ORPHANED && holds(block, BLOCK, 5));
    fill(block, BLOCK, 6);
    tarn_imported_pool *late = pool_import(share, 0); /* whoever has a share can import it */
    CHECK(state_of(late) == TARN_IMPORT_ORPHANED);
    OK(tarn_share_close(share));
    OK(tarn_imported_pool_close(imported));
    OK(tarn_imported_pool_close(late));
    nothing_is_left(0);
}

/* The board of a share as an importer of the same user can open it, whatever its mode says. */
static int board_to_write(const tarn_share *share)
{
    char path[32];
    int file = share_board(share);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    CHECK((fcntl(file, F_GETFL) & O_ACCMODE) == O_RDONLY);
    CHECK(fchmod(file, 0600) == 0 && (file = open(path, O_RDWR | O_CLOEXEC)) >= 0);
    return file;
}

static bool lock_byte(int file, short type, off_t byte)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

static void an_importer_does_not_stand_in_for_the_exporter(void **state)
{
    (void)state;
    struct side side = start_side("export and die", SOCK_STREAM);
    tarn_share *share = received_from(side.socket);
    tarn_imported_pool *imported = pool_import(share, 0);
    (void)told(side.socket);
    int file = board_to_write(share);
    CHECK(!lock_byte(file, F_WRLCK, 0) && state_of(imported) == TARN_IMPORT_CURRENT);
    say(side.socket, 'e');
    end_side(side, 128 + SIGKILL);
    CHECK(lock_byte(file, F_WRLCK, 0) && state_of(imported) == TARN_IMPORT_ORPHANED);
    tarn_imported_pool *late = pool_import(share, 0);
    CHECK(state_of(late) == TARN_IMPORT_ORPHANED);
    OK(tarn_imported_pool_close(late));
    OK(tarn_imported_pool_close(imported));
    OK(tarn_share_close(share));
    close(file);
    nothing_is_left(0);
}

static void *count_importers(void *share)
{
    return (void *)importers(share);
}

/* A process counts once, and one that locks whatever it can neither stalls the exporter, nor has it
 * run out of stack, nor keeps others away. */
static void an_importer_counts_in_bounds(void **state)
{
    enum { FILES = 900, LOCKS = 20000 };
    static int files[FILES];
    (void)state;
    tarn_pool *pool = registrable(0);
    char *block = alloc_in(pool, own, BLOCK), path[32];
    tarn_share *share = pool_export(pool, NULL), *received = sent(share);
    tarn_imported_pool *first = pool_import(received, 1), *second = pool_import(received, 0);
    CHECK(importers(share) == 1);

    int file = board_to_write(received);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    for (int i = 0; i < FILES; i++) {
        files[i] = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(files[i] >= 0 && lock_byte(files[i], F_RDLCK, 4000000 - 2 * i));
    }
    pthread_attr_t small;
    pthread_t thread;
    void *count;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 << 10) == 0);
    CHECK(pthread_create(&thread, &small, count_importers, share) == 0 &&
          pthread_join(thread, &count) == 0);
    CHECK((size_t)count >= 1 && (size_t)count <= FILES + 1);
    for (int i = 0; i < FILES; i++)
        close(files[i]);

    for (int i = 0; i < LOCKS; i++)
        CHECK(lock_byte(file, F_WRLCK, 2 * i + 2));
    CHECK(importers(share) >= 1 && importers(share) <= BOARD_IMPORTERS);
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1};
    OK(tarn_imported_pool_close(first));
    OK(tarn_imported_pool_close(second));
    CHECK(fcntl(file, F_OFD_SETLK, &all) == 0 && importers(share) == 1);
    close(file);
    CHECK(importers(share) == 0);
    OK(tarn_share_close(received));
    OK(tarn_share_close(share));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Waits until the other side has died, and has its child running. */
static void wait_for_death(struct side side)
{
    siginfo_t info;
    hear(side.socket, 'f');
    CHECK(waitid(P_PID, (id_t)side.process, &info, WEXITED | WNOWAIT) == 0);
}

static void children_of_fork_do_not_count(void **state)
{
    (void)state;
    struct side side = start_side("import, fork and die", SOCK_STREAM);
    tarn_pool *pool = registrable(0);
    char *block = alloc_in(pool, own, BLOCK), word = 0;
    int files = open_files(), status = 0;
    fill(block, BLOCK, 5);
    tarn_share *share = pool_export(pool, NULL), *received = sent(share);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(open_files() == files ? 0 : 1); /* otherwise it would keep the memory after the share
                                                 was closed */
    CHECK(waitpid(child, &status, 0) == child && status == 0 && open_files() > files);
    OK(tarn_share_close(received));
    OK(tarn_share_send(side.socket, share));
    wait_for_death(side);
    CHECK(importers(share) == 0);
    end_side(side, 128 + SIGKILL);

    side = start_side("receive and fork", SOCK_STREAM);
    OK(tarn_share_send(side.socket, share));
    tell(side.socket, block);
    CHECK(waitpid(side.process, &status, 0) == side.process && status == 0);
    close(side.socket);

    tarn_imported_pool *here = pool_import(share, 1), *other = pool_import(share, 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* a fork of which nothing is told */
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[1]);
        (void)!read(ends[0], &word, 1);
        _exit(0);
    }
    OK(tarn_imported_pool_close(here));
    CHECK(importers(share) == 1 && state_of(other) == TARN_IMPORT_CURRENT);
    OK(tarn_imported_pool_close(other));
    CHECK(importers(share) == 0);
    close(ends[0]);
    close(ends[1]);
    CHECK(waitpid(child, NULL, 0) == child);
    OK(tarn_share_close(share));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));

    side = start_side("export, fork and die", SOCK_STREAM);
    share = received_from(side.socket);
    here = pool_import(share, 0);
    wait_for_death(side);
    CHECK(state_of(here) == TARN_IMPORT_ORPHANED);
    end_side(side, 128 + SIGKILL);
    OK(tarn_share_close(share));
    OK(tarn_imported_pool_close(here));
    nothing_is_left(0);
    nothing_is_left(1);
}

/* ---- In one process ---- */

/* Whether a sleep leaves the pool awake because it is exported. */
static bool sleeps_without(tarn_pool_id id)
{
    tarn_residue_item items[16];
    tarn_residue residue = {.size = sizeof residue, .items = items, .room = 16};
    bool found = false;
    OK(tarn_sleep(
        &(tarn_sleep_options){.size = sizeof(tarn_sleep_options), .what = TARN_SLEEP_POOLS},
        &residue));
    OK(tarn_wake());
    for (size_t i = 0; i < residue.count && i < 16; i++)
        found |= items[i].reason == TARN_RESIDUE_EXPORTED && items[i].pool.second == id.second;
    return found;
}

static void what_is_exported_stays(void **state)
{
    (void)state;
    tarn_pool *pool = registrable(0);
    tarn_pool_id id = pool_info_of(pool).id;
    char *block = alloc_in(pool, own, BLOCK), *other = alloc_in(pool, own, BLOCK);
    tarn_share *share = pool_export(pool, NULL);
    tarn_imported_pool *imported = pool_import(share, 1);
    size_t created = ledger_of(0).created, gained = 0;
    fill(block, BLOCK, 5);
    fill(other, BLOCK, 6);
    OK(tarn_free(other)); /* a free segment stays as well */
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == created);
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_BUSY);
    OK(tarn_compact(0, TARN_NO_LIMIT, &gained));
    CHECK(sleeps_without(id));
    CHECK(holds(local(imported, block, BLOCK), BLOCK, 5) &&
          holds(local(imported, other, BLOCK), BLOCK, 6));
    CHECK(state_of(imported) == TARN_IMPORT_CURRENT);
    CHECK(alloc_in(pool, own, BLOCK) == other);
    OK(tarn_free(other));
    verify(0);
    OK(tarn_share_close(share)); /* the last one: nothing is held for importers any more */
    CHECK(state_of(imported) == TARN_IMPORT_REVOKED);
    OK(tarn_pool_suspend(pool, true));
    GIVES(tarn_pool_export(pool, NULL, &share), TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
    CHECK(holds(local(imported, other, BLOCK), BLOCK, 6)); /* the importer has that memory still */
    OK(tarn_imported_pool_close(imported));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    nothing_is_left(1);
}

static void a_layout_has_a_number(void **state)
{
    (void)state;
    tarn_pool *pool = registrable(0);
    tarn_share *empty = pool_export(pool, NULL), *same = pool_export(pool, NULL);
    CHECK(info_of(empty).generation == 1 && info_of(same).generation == 1 &&
          info_of(empty).pieces == 0);
    tarn_imported_pool *imported = pool_import(empty, 1);
    CHECK(state_of(imported) == TARN_IMPORT_CURRENT);
    OK(tarn_share_close(same));
    char *block = alloc_in(pool, own, BLOCK);
    tarn_share *one = pool_export(pool, empty);
    CHECK(info_of(one).generation == 2 && state_of(imported) == TARN_IMPORT_OUTDATED);
    CHECK(info_of(one).id[0] == info_of(empty).id[0] && info_of(one).id[1] == info_of(empty).id[1]);
    OK(tarn_imported_pool_update(imported, one));
    OK(tarn_imported_pool_update(imported, one));
    GIVES(tarn_imported_pool_update(imported, empty), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "older"));
    char *seen = local(imported, block, BLOCK);
    *block = 7;
    CHECK(*seen == 7 && local(imported, block + 5, 1) == seen + 5);
    CHECK(ledger_of(1).mapped == info_of(one).mapped);

    /* A segment that goes, and another at its place, is another segment. */
    OK(tarn_free(block));
    OK(tarn_share_close(one)); /* and so its anchors; that of no segment is open still */
    OK(tarn_pool_trim(pool, 0));
    CHECK(alloc_in(pool, own, BLOCK) == block);
    tarn_share *again = pool_export(pool, empty);
    CHECK(info_of(again).generation == 3 && state_of(imported) == TARN_IMPORT_OUTDATED);
    *block = 8;
    CHECK(*seen == 7);
    OK(tarn_imported_pool_update(imported, again));
    CHECK(*local(imported, block, BLOCK) == 8 && ledger_of(1).mapped == info_of(again).mapped);

    /* And a suspend maps all of it anew. */
    OK(tarn_share_close(again));
    OK(tarn_pool_suspend(pool, true));
    GIVES(tarn_pool_export(pool, empty, &again), TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
    again = pool_export(pool, empty);
    CHECK(info_of(again).generation == 4);
    OK(tarn_imported_pool_update(imported, again));
    *block = 9;
    CHECK(*local(imported, block, BLOCK) == 9 && ledger_of(1).mapped == info_of(again).mapped);
    OK(tarn_imported_pool_close(imported));
    OK(tarn_share_close(again));
    OK(tarn_share_close(empty));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    nothing_is_left(1);
}

/* What cannot be imported leaves the import, the files and the memory as they were. */
static void updates_that_do_not_fit_change_nothing(void **state)
{
    (void)state;
    tarn_pool *pool = registrable(0), *other = registrable(0);
    char *block = alloc_in(pool, own, BLOCK), *strange = alloc_in(other, own, BLOCK);
    tarn_share *share = pool_export(pool, NULL), *foreign = pool_export(other, NULL), *none = NULL;
    tarn_imported_pool *imported = pool_import(share, 1), *nothing = NULL;
    char *seen = local(imported, block, BLOCK);
    char *second = alloc_in(pool, own, BLOCK);
    tarn_share *middle = pool_export(pool, share), *third = NULL;
    char *last = alloc_in(pool, own, BLOCK);
    tarn_share *end = pool_export(pool, middle), *block_share = export_of(block);
    third = sent(end);
    int files = open_files();
    size_t mapped = ledger_of(1).mapped;
    /* `middle` was not imported */
    GIVES(tarn_imported_pool_update(imported, end), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "whole"));
    GIVES(tarn_imported_pool_update(imported, third), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_import(third, 1, &nothing), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_imported_pool_update(imported, foreign), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_imported_pool_update(imported, block_share), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_import(block_share, 1, &nothing), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_import(share, 1, (void **)&nothing), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "tarn_pool_import()"));
    GIVES(tarn_pool_export(pool, foreign, &none), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_export(pool, block_share, &none), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_export(pool, third, &none), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_share_revoke(third), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_share_revoke(block_share), TARN_ERROR_INVALID_ARGUMENT);
    tarn_share *whole = pool_export(pool, NULL);
    CHECK(!nothing && !none && ledger_of(1).mapped == mapped &&
          local(imported, block, BLOCK) == seen);
    CHECK(state_of(imported) == TARN_IMPORT_OUTDATED);
    OK(tarn_share_close(whole));
    CHECK(open_files() == files);

    /* After a revocation exports are others. */
    OK(tarn_share_revoke(share));
    CHECK(state_of(imported) == TARN_IMPORT_REVOKED);
    GIVES(tarn_pool_export(pool, middle, &none), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "revoked"));
    tarn_share *anew = pool_export(pool, NULL);
    CHECK(info_of(anew).id[1] != info_of(share).id[1] && info_of(anew).generation == 1);
    GIVES(tarn_imported_pool_update(imported, anew), TARN_ERROR_INVALID_ARGUMENT);
    tarn_imported_pool *current = pool_import(anew, 1);
    CHECK(state_of(current) == TARN_IMPORT_CURRENT && importers(anew) == 1 &&
          importers(share) == 1);
    OK(tarn_imported_pool_close(current));
    OK(tarn_imported_pool_close(imported));
    GIVES(tarn_imported_pool_close(imported), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_imported_pool_close(NULL));
    tarn_share *const shares[] = {share, foreign, middle, third, end, block_share, anew};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        OK(tarn_share_close(shares[i]));
    OK(tarn_free(block));
    OK(tarn_free(strange));
    OK(tarn_free(second));
    OK(tarn_free(last));
    OK(tarn_pool_release(pool));
    OK(tarn_pool_release(other));
    nothing_is_left(0);
    nothing_is_left(1);
}

static void an_imported_segment_is_not_a_block(void **state)
{
    (void)state;
    tarn_pool *pool = registrable(0);
    char *block = alloc_in(pool, own, 3 * MIB);
    tarn_share *share = pool_export(pool, NULL);
    tarn_imported_pool *imported = pool_import(share, 1), *twice = pool_import(share, 1);
    char *seen = local(imported, block, 3 * MIB);
    void *nothing = NULL;
    tarn_block_info info = {.size = sizeof info};
    CHECK(local(twice, block, 1) != seen && seen != block);
    GIVES(tarn_free(seen), TARN_ERROR_INVALID_POINTER);
    CHECK(strstr(tarn_last_error(), "tarn_imported_pool_close()"));
    GIVES(tarn_import_close(seen), TARN_ERROR_INVALID_POINTER);
    CHECK(strstr(tarn_last_error(), "tarn_imported_pool_close()"));
    OK(tarn_pointer_info_get(seen, &info));
    CHECK(info.imported && info.device == 1 && info.usable_size == info_of(share).mapped);
    GIVES(tarn_import_close(info.base), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_imported_pool_find(imported, block, info.usable_size + 1, &nothing),
          TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_imported_pool_find(imported, block, SIZE_MAX, &nothing), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_imported_pool_find(imported, NULL, 1, &nothing), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_imported_pool_find(imported, block, 1, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_imported_pool_state_get(imported, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_imported_pool_update(imported, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_imported_pool_update(NULL, share), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_import(share, 1, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_import(share, 9, &(tarn_imported_pool *){NULL}), TARN_ERROR_INVALID_DEVICE);
    GIVES(tarn_pool_export(pool, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_export(NULL, NULL, &(tarn_share *){NULL}), TARN_ERROR_INVALID_ARGUMENT);
    tarn_pool *ordinary = pool_with((tarn_pool_options){.device = 0, .exportable = true});
    GIVES(tarn_pool_export(ordinary, NULL, &(tarn_share *){NULL}), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(tarn_last_error(), "not registrable"));
    OK(tarn_pool_release(ordinary));
    CHECK(!nothing);
    OK(tarn_imported_pool_close(imported));
    OK(tarn_imported_pool_close(twice));
    OK(tarn_share_close(share));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    nothing_is_left(1);
}

static void a_pool_that_ends_is_held_by_its_share(void **state)
{
    (void)state;
    tarn_pool *pool = registrable(0);
    char *block = alloc_in(pool, own, BLOCK);
    *block = 5;
    tarn_share *share = pool_export(pool, NULL);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created > 0);
    tarn_imported_pool *imported = pool_import(share, 1);
    CHECK(*local(imported, block, BLOCK) == 5 && state_of(imported) == TARN_IMPORT_CURRENT);
    OK(tarn_share_close(share));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == 0 && *local(imported, block, BLOCK) == 5);
    OK(tarn_imported_pool_close(imported));
    nothing_is_left(0);
    nothing_is_left(1);
}

static tarn_pool *leaving;
static tarn_share *seen_leaving;

static void export_what_is_left(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    if (!seen_leaving)
        seen_leaving = pool_export(leaving, NULL);
}

/* A trim that has begun to unmap a segment does so: an export in the middle of it is without. */
static void what_a_trim_takes_is_not_exported(void **state)
{
    (void)state;
    tarn_observer_options options = {
        .size = sizeof options, .device = 0, .unmapping = export_what_is_left};
    tarn_observer observer = 0;
    leaving = registrable(0);
    char *block = alloc_in(leaving, own, BLOCK), *stays = alloc_in(leaving, own, BLOCK);
    OK(tarn_free(block));
    OK(tarn_observer_add(&options, &observer));
    OK(tarn_pool_trim(leaving, 0));
    OK(tarn_observer_remove(observer));
    CHECK(seen_leaving && info_of(seen_leaving).pieces == 1);
    tarn_imported_pool *imported = pool_import(seen_leaving, 1);
    void *nothing = NULL;
    CHECK(local(imported, stays, BLOCK) != NULL);
    GIVES(tarn_imported_pool_find(imported, block, 1, &nothing), TARN_ERROR_INVALID_POINTER);
    OK(tarn_imported_pool_close(imported));
    OK(tarn_share_close(seen_leaving));
    OK(tarn_free(stays));
    OK(tarn_pool_release(leaving));
    nothing_is_left(0);
    nothing_is_left(1);
}

static void many_rounds_leave_no_file_open(void **state)
{
    (void)state;
    tarn_pool *pool = registrable(0);
    char *block = alloc_in(pool, own, BLOCK);
    int files = open_files();
    for (int i = 0; i < 300; i++) {
        tarn_share *share = pool_export(pool, NULL), *received = sent(share);
        tarn_imported_pool *imported = pool_import(received, 1);
        OK(tarn_share_close(received));
        CHECK(importers(share) == 1);
        OK(i % 2 ? tarn_imported_pool_close(imported) : tarn_share_close(share));
        OK(i % 2 ? tarn_share_close(share) : tarn_imported_pool_close(imported));
        CHECK(open_files() == files);
    }
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    nothing_is_left(1);
}

/* ---- Threads ---- */

static tarn_pool *busy;
static atomic_bool over;

static void *grow_and_shrink(void *argument)
{
    tarn_stream stream = lease(0);
    (void)argument;
    for (int i = 0; i < 200 && !atomic_load(&over); i++) {
        void *blocks[3] = {NULL, NULL, NULL};
        for (int k = 0; k < 3; k++)
            (void)tarn_pool_alloc(busy, stream, (size_t)(1 + k) * 17 * MIB, &blocks[k]);
        for (int k = 0; k < 3; k++)
            OK(tarn_free(blocks[k]));
        OK(tarn_pool_trim(busy, 0));
    }
    atomic_store(&over, true);
    return NULL;
}

/* Each share is of one moment: what it shows is there, and two of the same generation are the
 * same. */
static void exports_meet_growth_and_trims(void **state)
{
    (void)state;
    pthread_t threads[2];
    busy = registrable(0);
    atomic_store(&over, false);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, grow_and_shrink, NULL) == 0);
    tarn_share *share = pool_export(busy, NULL);
    tarn_imported_pool *imported = pool_import(share, 1);
    while (!atomic_load(&over)) {
        tarn_share *next = pool_export(busy, share);
        CHECK(info_of(next).generation >= info_of(share).generation);
        OK(tarn_imported_pool_update(imported, next));
        CHECK(ledger_of(1).mapped == info_of(next).mapped);
        CHECK(info_of(next).generation != info_of(share).generation ||
              info_of(next).bytes == info_of(share).bytes);
        OK(tarn_share_close(share));
        share = next;
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    verify(0);
    OK(tarn_imported_pool_close(imported));
    OK(tarn_share_close(share));
    OK(tarn_pool_release(busy));
    nothing_is_left(0);
    nothing_is_left(1);
}

static int start(void **state)
{
    (void)state;
    host_start_with(2, DEVICE);
    own = lease(0);
    OK(tarn_device_synchronize(1));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[0], "side") == 0)
        return play(argv[1], atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_grows_while_it_is_imported),
        cmocka_unit_test(an_importer_that_is_killed_does_not_count),
        cmocka_unit_test(an_exporter_that_is_killed_is_missed),
        cmocka_unit_test(an_importer_does_not_stand_in_for_the_exporter),
        cmocka_unit_test(an_importer_counts_in_bounds),
        cmocka_unit_test(children_of_fork_do_not_count),
        cmocka_unit_test(what_is_exported_stays),
        cmocka_unit_test(a_layout_has_a_number),
        cmocka_unit_test(updates_that_do_not_fit_change_nothing),
        cmocka_unit_test(an_imported_segment_is_not_a_block),
        cmocka_unit_test(a_pool_that_ends_is_held_by_its_share),
        cmocka_unit_test(what_a_trim_takes_is_not_exported),
        cmocka_unit_test(many_rounds_leave_no_file_open),
        cmocka_unit_test(exports_meet_growth_and_trims),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
