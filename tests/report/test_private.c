/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The files that the library makes are their user's alone: what they are, what another user can do
 * with them, and what becomes of names that somebody else had first. In a directory that everybody
 * may write to, as /tmp is, with no umask to help. The other user's part needs root, who becomes
 * two users; without it there is nobody else to try. */
#include "report/metrics_test.h"
#include "report/page.h"
#include "support/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tarn/live.h>
#include <unistd.h>

#include <cmocka.h>

enum { OWNER = 65534, OTHER = 65533 };

static char directory[64];

static const char *in_directory(const char *name)
{
    static char path[4][512];
    static unsigned next;
    char *made = path[next++ % 4];
    snprintf(made, sizeof path[0], "%s/%s", directory, name);
    return made;
}

static void become(uid_t user)
{
    if (geteuid() != 0)
        return;
    CHECK(setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0);
}

static void directory_make(void)
{
    strcpy(directory, "/tmp/tarn-test-private.XXXXXX");
    CHECK(mkdtemp(directory) && chmod(directory, 01777) == 0);
}

static void directory_remove(void)
{
    DIR *folder = opendir(directory);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        (void)unlink(in_directory(entry->d_name));
    if (folder)
        closedir(folder);
    CHECK(rmdir(directory) == 0);
}

/* Everything that makes a file. */
static void make_all(void)
{
    const tarn_snapshot_options chrome = {
        .size = sizeof chrome, .format = TARN_SNAPSHOT_CHROME, .max_bytes = TARN_NO_LIMIT};
    const tarn_live_options live = {.size = sizeof live, .directory = directory};
    CHECK(setenv("TARN_OOM_SNAPSHOT", directory, 1) == 0);
    host_start_with(1, 16 * MIB);
    CHECK(tarn_malloc(4096) && !tarn_malloc(64 * MIB));
    OK(tarn_live_start(&live));
    OK(tarn_snapshot_write(in_directory("snapshot"), NULL));
    OK(tarn_snapshot_write(in_directory("timeline"), &chrome));
    OK(write_metrics(in_directory("metrics")));
}

/* ---- What they are ---- */

/* The rights of a file of that name. */
static mode_t rights_of(const char *name)
{
    if (strncmp(name, PAGE_PREFIX, strlen(PAGE_PREFIX)) == 0)
        return 0400; /* not even its owner's other processes write to it */
    if (strcmp(name, "metrics") == 0)
        return 0644; /* a collector reads it, who is another user by design */
    CHECK(strncmp(name, "tarn-oom-", 9) == 0 || strcmp(name, "snapshot") == 0 ||
          strcmp(name, "timeline") == 0);
    return 0600;
}

static int check_files(void)
{
    int count = 0;
    DIR *folder = opendir(directory);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        struct stat info;
        if (entry->d_name[0] == '.' && (!entry->d_name[1] || entry->d_name[1] == '.'))
            continue;
        CHECK(lstat(in_directory(entry->d_name), &info) == 0);
        CHECK(S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1);
        CHECK((info.st_mode & 07777) == rights_of(entry->d_name));
        count++;
    }
    closedir(folder);
    return count;
}

/* Of the descriptors that came since: no socket, and nothing that a program would inherit. */
static void check_descriptors(const bool *before)
{
    for (int file = 0; file < 256; file++) {
        struct stat info;
        if (before[file] || fstat(file, &info))
            continue;
        CHECK(!S_ISSOCK(info.st_mode) && !S_ISFIFO(info.st_mode));
        CHECK(fcntl(file, F_GETFD) & FD_CLOEXEC);
    }
}

static void all_files_are_their_users_alone(void)
{
    bool before[256];
    for (int file = 0; file < 256; file++)
        before[file] = fcntl(file, F_GETFD) >= 0;
    become(OWNER);
    umask(0);
    make_all();
    CHECK(check_files() == 6); /* a page, two snapshots, the metrics, and two of the
                                  out-of-memory */
    check_descriptors(before);
    if (geteuid() != 0) {
        char path[128];
        snprintf(path, sizeof path, "%s/" PAGE_PREFIX "%ld", directory, (long)getpid());
        CHECK(open(path, O_RDWR) == -1 && errno == EACCES);
        CHECK(open(path, O_WRONLY | O_TRUNC) == -1 && errno == EACCES);
    }
    OK(tarn_live_stop());
}

static void test_files(void **state)
{
    (void)state;
    directory_make();
    in_child(all_files_are_their_users_alone);
    directory_remove();
}

/* ---- Another user ---- */

/* Two processes of two users that take turns: each waits for the other's word. */
static int turns[2][2];
static pid_t owner;

static void wait_turn(int of)
{
    char word;
    CHECK(read(turns[of][0], &word, 1) == 1);
}

static void give_turn(int to)
{
    CHECK(write(turns[to][1], "", 1) == 1);
}

static void (*by_owner)(void), (*by_other)(void);

/* In a child, whose checks end it: so they do in the child of that. */
static void play_both(void)
{
    int status = -1;
    CHECK(pipe(turns[0]) == 0 && pipe(turns[1]) == 0);
    pid_t other = fork();
    CHECK(other >= 0);
    become(other ? OWNER : OTHER);
    umask(0);
    if (other == 0) {
        alarm(60);
        by_other();
        _exit(0);
    }
    by_owner();
    CHECK(waitpid(other, &status, 0) == other && status == 0);
}

static void run_two(void (*first)(void), void (*second)(void))
{
    by_owner = first;
    by_other = second;
    directory_make();
    in_child(play_both);
    directory_remove();
}

static void tell_name(void)
{
    owner = getpid();
    CHECK(write(turns[1][1], &owner, sizeof owner) == sizeof owner);
}

static void hear_name(void)
{
    CHECK(read(turns[1][0], &owner, sizeof owner) == sizeof owner);
}

static void makes_and_waits(void)
{
    tell_name();
    make_all();
    give_turn(1);
    wait_turn(0);
    OK(tarn_live_stop());
}

static void refused_to_open(const char *path, int flags)
{
    int file = open(path, flags | O_CLOEXEC);
    CHECK(file == -1 && (errno == EACCES || errno == EPERM));
}

static void tries_to_use_them(void)
{
    char path[512];
    int found = 0;
    hear_name();
    wait_turn(1);
    DIR *folder = opendir(directory);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        const char *name = in_directory(entry->d_name);
        refused_to_open(name, O_WRONLY);
        refused_to_open(name, O_RDWR);
        if (strcmp(entry->d_name, "metrics") != 0)
            refused_to_open(name, O_RDONLY);
        CHECK(truncate(name, 0) == -1 && chmod(name, 0666) == -1 && unlink(name) == -1);
        CHECK(rename(name, in_directory("mine")) == -1);
        found++;
    }
    closedir(folder);
    CHECK(found == 6);
    /* Its memory is a file that has no other name */
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)owner);
    CHECK(opendir(path) == NULL && errno == EACCES);
    snprintf(path, sizeof path, "/proc/%ld/mem", (long)owner);
    refused_to_open(path, O_RDONLY);
    give_turn(0);
}

static void test_other_user(void **state)
{
    (void)state;
    if (geteuid() == 0)
        run_two(makes_and_waits, tries_to_use_them);
    else
        print_message("without root there is no other user to be\n");
}

/* ---- Names that were there first ---- */

#define VICTIM "what the owner has"

static void makes_where_others_were(void)
{
    const tarn_live_options live = {.size = sizeof live, .directory = directory};
    char text[64] = "";
    struct stat info;
    int victim = open(in_directory("victim"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(victim >= 0 && write(victim, VICTIM, sizeof VICTIM) == sizeof VICTIM);
    tell_name();
    wait_turn(0);
    host_start_with(1, 16 * MIB);
    GIVES(tarn_snapshot_write(in_directory("snapshot"), NULL),
          TARN_ERROR_SYSTEM); /* a name that is the other's stays so */
    GIVES(write_metrics(in_directory("metrics")), TARN_ERROR_SYSTEM);
    OK(tarn_snapshot_write(in_directory("free"), NULL)); /* beside names that were guessed */
    CHECK(lstat(in_directory("free"), &info) == 0 && info.st_uid == geteuid() &&
          (info.st_mode & 07777) == 0600);
    OK(tarn_live_start(&live));
    char page[64];
    snprintf(page, sizeof page, PAGE_PREFIX "%ld.3", (long)getpid());
    CHECK(lstat(in_directory(page), &info) == 0 && S_ISREG(info.st_mode) &&
          info.st_uid == geteuid());
    OK(tarn_live_stop());
    CHECK(pread(victim, text, sizeof text, 0) == sizeof VICTIM && strcmp(text, VICTIM) == 0);
    CHECK(fstat(victim, &info) == 0 && (info.st_mode & 07777) == 0600);
    give_turn(1);
}

/* A link to a file of the owner's, a file that everybody may write to, and a pipe that nobody
 * reads, where a name is expected. */
static void lays_traps(void)
{
    char name[128];
    hear_name();
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, ".%s.%ld.%d.tmp", "free", (long)owner, i);
        CHECK(symlink(in_directory("victim"), in_directory(name)) == 0);
    }
    CHECK(symlink(in_directory("victim"), in_directory("snapshot")) == 0);
    int file = open(in_directory("metrics"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    CHECK(file >= 0);
    snprintf(name, sizeof name, PAGE_PREFIX "%ld", (long)owner);
    CHECK(symlink(in_directory("victim"), in_directory(name)) == 0);
    snprintf(name, sizeof name, PAGE_PREFIX "%ld.1", (long)owner);
    CHECK(mkfifo(in_directory(name), 0666) == 0 && chmod(in_directory(name), 0666) == 0);
    snprintf(name, sizeof name, PAGE_PREFIX "%ld.2", (long)owner);
    int page = open(in_directory(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    CHECK(page >= 0);
    give_turn(0);
    wait_turn(1);
    struct stat info;
    CHECK(fstat(file, &info) == 0 && info.st_size == 0 && fstat(page, &info) == 0 &&
          info.st_size == 0);
}

static void test_names(void **state)
{
    (void)state;
    if (geteuid() == 0)
        run_two(makes_where_others_were, lays_traps);
    else
        print_message("without root there is no other user to be\n");
}

/* ---- A program that runs with another's rights ---- */

enum { ENVIRONMENT_COUNTS = 10, ENVIRONMENT_IS_IGNORED };

/* What this program is when it is run as a copy with the set-user-ID bit, and when without. */
static int as_another(void)
{
    int count = 0;
    bool secure = getauxval(AT_SECURE) != 0;
    host_start_with(1, 16 * MIB);
    tarn_status status = tarn_device_count_get(&count);
    if (secure)
        return status == TARN_OK ? ENVIRONMENT_IS_IGNORED : 1;
    return status == TARN_ERROR_CONFIGURATION ? ENVIRONMENT_COUNTS : 1;
}

static int run_copy(mode_t rights)
{
    char command[256];
    int status = -1;
    const char *path = in_directory("copy");
    snprintf(command, sizeof command, "cp /proc/%ld/exe '%s'", (long)getpid(), path);
    CHECK(system(command) == 0 && chmod(path, rights) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        become(OTHER);
        (void)setenv("TARN_DEBUG", "nonsense", 1);
        (void)execl(path, path, "as-another", (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    (void)unlink(path);
    return WEXITSTATUS(status);
}

static void test_environment(void **state)
{
    (void)state;
    directory_make();
    CHECK(run_copy(0755) == ENVIRONMENT_COUNTS);
    int result = geteuid() == 0 ? run_copy(04755) : ENVIRONMENT_COUNTS;
    CHECK(result == ENVIRONMENT_IS_IGNORED ||
          result == ENVIRONMENT_COUNTS); /* the latter on a file system that is mounted so */
    if (result == ENVIRONMENT_COUNTS)
        print_message("no program runs with another's rights here\n");
    directory_remove();
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "as-another") == 0)
        return as_another();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_other_user),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
