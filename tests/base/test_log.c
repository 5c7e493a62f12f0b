/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What is written to standard error for each value of TARN_LOG: in a child, since the value is read
 * once. */
#include "base/log.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char said[8192];

/* Runs `speak` in a child with TARN_LOG so; gives what it wrote. */
static const char *with(const char *value, void (*speak)(void))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (value)
            setenv("TARN_LOG", value, 1);
        else
            unsetenv("TARN_LOG");
        speak();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t now; (now = read(ends[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)now;
    said[length] = 0;
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return said;
}

static void speak_at_each_level(void)
{
    log_write(LOG_ERRORS, "an error, %d", 1);
    log_write(LOG_INFO, "news");
    log_write(LOG_ALL, "everything");
}

static void test_levels(void **state)
{
    (void)state;
    assert_string_equal(with(NULL, speak_at_each_level), "");
    assert_string_equal(with("", speak_at_each_level), "");
    assert_string_equal(with("errors", speak_at_each_level), "tarn: an error, 1\n");
    assert_string_equal(with("info", speak_at_each_level), "tarn: an error, 1\ntarn: news\n");
    assert_string_equal(with("all", speak_at_each_level),
                        "tarn: an error, 1\ntarn: news\ntarn: everything\n");
    assert_string_equal(with("loud", speak_at_each_level),
                        "tarn: TARN_LOG is none of errors, info and all; nothing is logged\n");
}

static void speak_at_length(void)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    log_write(LOG_ERRORS, "%s", text);
    log_write(LOG_ERRORS, "after it");
}

static void test_a_line_too_long_is_cut_and_ends(void **state)
{
    (void)state;
    const char *text = with("errors", speak_at_length);
    const char *end = strchr(text, '\n');
    assert_non_null(end);
    assert_true(end - text > 2048 && end - text < 2200 && strncmp(end - 3, "...", 3) == 0);
    assert_string_equal(end, "\ntarn: after it\n");
}

/* A log that nobody reads any more does not end the program, and leaves its signals as they
 * were. */
static void speak_to_nobody(void)
{
    int ends[2];
    sigset_t mask, pending;
    CHECK(setenv("TARN_LOG", "all", 1) == 0 && signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO && close(ends[0]) == 0);
    speak_at_each_level();
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGPIPE));
    CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE));
}

static void test_a_closed_pipe(void **state)
{
    (void)state;
    in_child(speak_to_nobody);
}

/* Nor does one whose file may not grow. A signal that the caller keeps for later is the
 * caller's. */
static void speak_to_a_full_file(void)
{
    const struct rlimit limit = {10, 10};
    sigset_t mask, pending;
    int file = memfd_create("log", MFD_CLOEXEC);
    CHECK(setenv("TARN_LOG", "all", 1) == 0 && signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    CHECK(file >= 0 && dup2(file, STDERR_FILENO) == STDERR_FILENO &&
          setrlimit(RLIMIT_FSIZE, &limit) == 0);
    speak_at_each_level();
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGXFSZ));
    CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGXFSZ));
    CHECK(sigaddset(&mask, SIGXFSZ) == 0 && pthread_sigmask(SIG_SETMASK, &mask, NULL) == 0 &&
          raise(SIGXFSZ) == 0);
    speak_at_each_level();
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ));
}

static void test_a_file_that_may_not_grow(void **state)
{
    (void)state;
    in_child(speak_to_a_full_file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_a_closed_pipe),
        cmocka_unit_test(test_a_file_that_may_not_grow),
        cmocka_unit_test(test_a_line_too_long_is_cut_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
