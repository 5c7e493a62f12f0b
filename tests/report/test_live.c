/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The life of a live page: who makes it, who may see it, and that it goes, however its process
 * ends. Each test runs in a process of its own, since a process is shut down once. */
#include "base/pages.h"
#include "driver/driver.h"
#include "report/page_test.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tarn/live.h>
#include <tarn/metrics.h>

#include <cmocka.h>

static const tarn_live_options fast = {.size = sizeof fast, .interval_ms = 10};

static bool take_nothing(const void *text, size_t length, void *user)
{
    (void)text;
    (void)length;
    (void)user;
    return true;
}

static const char *own_path(void)
{
    return page_path((long)getpid());
}

/* Starting and stopping ------------------------------------------------------------------------ */

static void start_and_stop(void)
{
    struct stat info;
    OK(tarn_live_start(&fast));
    CHECK(lstat(own_path(), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 07777) == 0400);
    CHECK(info.st_size == (off_t)sizeof(struct page));
    CHECK(is_shown(own_path()));
    GIVES(tarn_live_start(NULL), TARN_ERROR_BUSY);
    free(page_wait(own_path(), 3));
    OK(tarn_live_stop());
    CHECK(page_files() == 0);
    OK(tarn_live_stop());
    OK(tarn_live_start(&fast)); /* and again */
    free(page_wait(own_path(), 1));
    OK(tarn_shutdown());
    CHECK(page_files() == 0);
    GIVES(tarn_live_start(NULL), TARN_ERROR_SHUTDOWN);
    GIVES(tarn_live_stop(), TARN_ERROR_SHUTDOWN);
}

static void a_page_is_there_from_start_to_stop(void **state)
{
    (void)state;
    in_child(start_and_stop);
}

static void exit_while_it_is_written(void)
{
    OK(tarn_live_start(&fast));
    free(page_wait(own_path(), 2));
    exit(0);
}

/* The thread is held up in the driver while the page goes. */
static const struct driver *real;
static atomic_bool asked, stopped;

static tarn_status memory_info_slowly(int device, size_t *free_bytes, size_t *total_bytes)
{
    tarn_status status = real->memory_info(device, free_bytes, total_bytes);
    atomic_store(&asked, true);
    for (int i = 0; i < 100 && !atomic_load(&stopped); i++)
        usleep(2000); /* a stop that does not wait comes back meanwhile */
    CHECK(!atomic_load(&stopped));
    return status;
}

static void stop_while_it_is_written(void)
{
    OK(tarn_free(alloc_on(TARN_STREAM_LEGACY, 1000)));
    struct driver slow = *driver;
    real = driver;
    slow.memory_info = memory_info_slowly;
    driver = &slow;
    OK(tarn_live_start(&fast));
    while (!atomic_load(&asked))
        usleep(1000);
    OK(tarn_live_stop());
    atomic_store(&stopped, true);
    driver = real;
    CHECK(page_files() == 0);
}

static void a_stop_waits_for_calls_under_way(void **state)
{
    (void)state;
    in_child(stop_while_it_is_written);
}

static void it_goes_when_the_process_exits(void **state)
{
    (void)state;
    in_child(exit_while_it_is_written);
    CHECK(page_files() == 0);
}

static void the_environment_asks(void)
{
    CHECK(setenv("TARN_LIVE", "1", 1) == 0 && setenv("TARN_LIVE_NAME", "a name", 1) == 0 &&
          setenv("TARN_LIVE_INTERVAL", "20", 1) == 0);
    void *block = tarn_malloc(1000);
    CHECK(block && is_shown(own_path()));
    struct page *page = page_wait(own_path(), 2);
    CHECK(strcmp(page->head.name, "a name") == 0 && page->head.interval_ns == 20000000);
    CHECK(page->head.pid == (uint64_t)getpid() && page->head.version == PAGE_VERSION);
    CHECK(strcmp(page->head.driver, "host") == 0 &&
          strcmp(page->head.library, tarn_version()) == 0);
    free(page);
    OK(tarn_free(block));
    OK(tarn_shutdown());
    CHECK(page_files() == 0);
}

static void it_is_published_at_the_first_use_where_the_environment_says_so(void **state)
{
    (void)state;
    in_child(the_environment_asks);
}

static void nothing_asks(void)
{
    CHECK(setenv("TARN_LIVE", "0", 1) == 0);
    CHECK(tarn_malloc(1000));
    CHECK(page_files() == 0);
}

static void nothing_is_published_otherwise(void **state)
{
    (void)state;
    in_child(nothing_asks);
}

static const char *bad_variable, *bad_value;

static void malformed(void)
{
    CHECK(setenv(bad_variable, bad_value, 1) == 0);
    CHECK(!tarn_malloc(1000));
    CHECK(tarn_last_status() == TARN_ERROR_CONFIGURATION &&
          strstr(tarn_last_error(), bad_variable));
    CHECK(unsetenv(bad_variable) == 0); /* corrected, it works */
    CHECK(tarn_malloc(1000));
}

static void a_malformed_wish_is_an_error_that_names_it(void **state)
{
    static const char *const wishes[][2] = {
        {"TARN_LIVE", "yes"},
        {"TARN_LIVE", "10"},
        {"TARN_LIVE_NAME", "123"},
        {"TARN_LIVE_NAME", "a\nb"},
        {"TARN_LIVE_INTERVAL", "9"},
        {"TARN_LIVE_INTERVAL", "1s"},
        {"TARN_LIVE_INTERVAL", "-1"},
        {"TARN_METRICS_INTERVAL", "0"},
        {"TARN_METRICS", "/tmp/%d.prom"},
        {"TARN_METRICS_INTERVAL", "99999999999999999999"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        bad_variable = wishes[i][0];
        bad_value = wishes[i][1];
        in_child(malformed);
    }
}

static void bad_options(void)
{
    tarn_live_options options = {.size = 4};
    GIVES(tarn_live_start(&options), TARN_ERROR_INVALID_ARGUMENT);
    options = (tarn_live_options){.size = sizeof options, .interval_ms = 9};
    GIVES(tarn_live_start(&options), TARN_ERROR_INVALID_ARGUMENT);
    options = (tarn_live_options){.size = sizeof options, .name = ""};
    GIVES(tarn_live_start(&options), TARN_ERROR_INVALID_ARGUMENT);
    options.name = "0123456789012345678901234567890123456789012345678901234567890123456789a";
    GIVES(tarn_live_start(&options), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(page_files() == 0);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    in_child(bad_options);
}

/* Failures ------------------------------------------------------------------------------------- */

static void no_room(void)
{
    char long_path[5000];
    tarn_live_options options = {.size = sizeof options, .directory = "/nonexistent/directory"};
    GIVES(tarn_live_start(&options), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "/nonexistent/directory") &&
          strstr(tarn_last_error(), "TARN_LIVE_DIRECTORY"));
    options.directory = "/proc/self/comm"; /* a file */
    GIVES(tarn_live_start(&options), TARN_ERROR_SYSTEM);
    memset(long_path, 'a', sizeof long_path);
    long_path[sizeof long_path - 1] = '\0';
    options.directory = long_path;
    GIVES(tarn_live_start(&options), TARN_ERROR_SYSTEM);
    CHECK(tarn_malloc(1000));
    pages_fail(1, true);
    GIVES(tarn_live_start(&fast), TARN_ERROR_OUT_OF_HOST_MEMORY);
    GIVES(tarn_metrics_print(take_nothing, NULL), TARN_ERROR_OUT_OF_HOST_MEMORY);
    pages_fail(0, false);
    CHECK(page_files() == 0);
    /* Where a disk is full, or a limit as here, the page is refused when it is made, and not by a
     * signal when it is written. */
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    GIVES(tarn_live_start(&fast), TARN_ERROR_SYSTEM);
    CHECK(page_files() == 0);
}

static void a_page_that_cannot_be_made_leaves_nothing_behind(void **state)
{
    (void)state;
    in_child(no_room);
}

static void publishes_in_vain(void)
{
    CHECK(setenv("TARN_LIVE", "1", 1) == 0 &&
          setenv("TARN_LIVE_DIRECTORY", "/nonexistent", 1) == 0);
    CHECK(setenv("TARN_METRICS", "/nonexistent/x.prom", 1) == 0);
    void *block = tarn_malloc(1000);
    CHECK(block && *tarn_last_error() == '\0');
    OK(tarn_free(block));
    OK(tarn_shutdown());
}

static void the_program_goes_on_where_the_environment_asks_for_what_cannot_be(void **state)
{
    (void)state;
    in_child(publishes_in_vain);
}

/* Other processes ------------------------------------------------------------------------------ */

/* Runs a function in a child that is killed when it has written a letter; gives its number. */
static pid_t killed_child(void (*function)(int tell), bool leave)
{
    int tell[2];
    char letter;
    CHECK(pipe(tell) == 0);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(tell[0]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        function(tell[1]);
        _exit(1);
    }
    close(tell[1]);
    CHECK(read(tell[0], &letter, 1) == 1);
    close(tell[0]);
    if (!leave) {
        kill(child, SIGKILL);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    return child;
}

static void publish_and_wait(int tell)
{
    OK(tarn_live_start(&fast));
    CHECK(write(tell, "x", 1) == 1);
    for (;;)
        pause();
}

static void publishes(void)
{
    OK(tarn_live_start(&fast));
    CHECK(page_files() == 2); /* its own, and that of the one who lives */
    OK(tarn_live_stop());
}

static void what_a_dead_process_left_is_removed_and_what_a_living_one_shows_is_not(void **state)
{
    (void)state;
    pid_t dead = killed_child(publish_and_wait, false);
    CHECK(page_files() == 1 && !is_shown(page_path(dead)));
    pid_t lives = killed_child(publish_and_wait, true);
    CHECK(page_files() == 1 && is_shown(page_path(lives))); /* it has swept before it */
    in_child(publishes);
    CHECK(page_files() == 1 && is_shown(page_path(lives)));
    kill(lives, SIGKILL);
    CHECK(waitpid(lives, NULL, 0) == lives);
    page_sweep(directory);
    CHECK(page_files() == 0);
}

static void foreign_files(void)
{
    char path[128], target[128];
    snprintf(path, sizeof path, "%s/" PAGE_PREFIX "1", directory);
    snprintf(target, sizeof target, "%s/target", directory);
    int file = open(target, O_CREAT | O_RDWR, 0600);
    CHECK(file >= 0 && symlink(target, path) == 0);
    OK(tarn_live_start(&fast));
    CHECK(access(target, F_OK) == 0 && page_files() == 2); /* links are left alone */
    CHECK(unlink(path) == 0 && unlink(target) == 0 && mkdir(path, 0700) == 0);
    OK(tarn_live_stop());
    OK(tarn_live_start(&fast));
    CHECK(rmdir(path) == 0);
    OK(tarn_live_stop());
    close(file);
}

static void what_is_no_page_is_left_alone(void **state)
{
    (void)state;
    in_child(foreign_files);
}

/* A process in another namespace may have the same number. */
static void same_number(void)
{
    int file = open(own_path(), O_CREAT | O_EXCL | O_RDWR, 0400); /* as one that is being made */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(file >= 0 && fcntl(file, F_OFD_SETLK, &lock) == 0);
    OK(tarn_live_start(&fast));
    CHECK(page_files() == 2);
    OK(tarn_live_stop());
    CHECK(page_files() == 1 && is_shown(own_path()));
    close(file); /* now it is one that was left */
    OK(tarn_live_start(&fast));
    CHECK(page_files() == 1 && is_shown(own_path()));
    OK(tarn_live_stop());
}

static void a_page_of_the_same_number_is_not_taken_from_its_owner(void **state)
{
    (void)state;
    in_child(same_number);
}

/* A file of the page's name that was put there meanwhile is not ours to remove. */
static void replaced(void)
{
    OK(tarn_live_start(&fast));
    CHECK(unlink(own_path()) == 0);
    int file = open(own_path(), O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(file >= 0);
    OK(tarn_live_stop());
    CHECK(unlink(own_path()) == 0);
    close(file);
}

static void only_the_own_file_is_removed(void **state)
{
    (void)state;
    in_child(replaced);
}

/* Fork ----------------------------------------------------------------------------------------- */

static void refused_and_gone(void)
{
    GIVES(tarn_live_start(NULL), TARN_ERROR_FORKED);
    GIVES(tarn_live_stop(), TARN_ERROR_FORKED);
    GIVES(tarn_metrics_print(take_nothing, NULL), TARN_ERROR_FORKED);
    exit(0); /* with the handlers of its parent */
}

static void fork_while_it_is_written(void)
{
    OK(tarn_live_start(&fast));
    free(page_wait(own_path(), 2));
    for (int i = 0; i < 20; i++)
        in_child(refused_and_gone);
    CHECK(is_shown(own_path()));
    struct page *page = page_wait(own_path(), 1);
    free(page_wait(own_path(), page->survey.number + 2)); /* it is still written to */
    free(page);
    OK(tarn_live_stop());
}

static void a_child_has_no_page_and_keeps_its_parents_page(void **state)
{
    (void)state;
    in_child(fork_while_it_is_written);
}

static int to_tell;

static void fork_and_die(int tell)
{
    OK(tarn_live_start(&fast));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(write(tell, "x", 1) == 1);
        sleep_ms(60000);
        _exit(0);
    }
    dprintf(to_tell, "%ld ", (long)child);
    for (;;)
        pause();
}

static void a_child_that_lives_does_not_keep_the_page_of_a_dead_parent(void **state)
{
    int pipes[2];
    char text[32] = "";
    (void)state;
    CHECK(pipe(pipes) == 0);
    to_tell = pipes[1];
    pid_t dead = killed_child(fork_and_die, true);
    CHECK(read(pipes[0], text, sizeof text - 1) > 0);
    CHECK(is_shown(page_path(dead)));
    kill(dead, SIGKILL);
    CHECK(waitpid(dead, NULL, 0) == dead);
    CHECK(!is_shown(page_path(dead)));
    kill((pid_t)strtol(text, NULL, 10), SIGKILL);
    close(pipes[0]);
    close(pipes[1]);
    page_sweep(directory);
    CHECK(page_files() == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_there_from_start_to_stop),
        cmocka_unit_test(a_stop_waits_for_calls_under_way),
        cmocka_unit_test(it_goes_when_the_process_exits),
        cmocka_unit_test(it_is_published_at_the_first_use_where_the_environment_says_so),
        cmocka_unit_test(nothing_is_published_otherwise),
        cmocka_unit_test(a_malformed_wish_is_an_error_that_names_it),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(a_page_that_cannot_be_made_leaves_nothing_behind),
        cmocka_unit_test(the_program_goes_on_where_the_environment_asks_for_what_cannot_be),
        cmocka_unit_test(what_a_dead_process_left_is_removed_and_what_a_living_one_shows_is_not),
        cmocka_unit_test(what_is_no_page_is_left_alone),
        cmocka_unit_test(a_page_of_the_same_number_is_not_taken_from_its_owner),
        cmocka_unit_test(only_the_own_file_is_removed),
        cmocka_unit_test(a_child_has_no_page_and_keeps_its_parents_page),
        cmocka_unit_test(a_child_that_lives_does_not_keep_the_page_of_a_dead_parent),
    };
    host_start_with(2, 256 * MIB);
    directory_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(directory);
    return failed;
}
