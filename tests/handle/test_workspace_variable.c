/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The policy that the environment names. It is read once in a process, so each case has its own. */
#include "handle/fake.h"

#define VARIABLE "TARN_WORKSPACE"

static const char *text;
static tarn_workspace_policy expected;

/* 0 where the policy is what was expected, by itself and as handles see it, and where a set one
 * wins. */
static int policy_is(void)
{
    tarn_workspace_policy policy = (tarn_workspace_policy)7;
    if (text ? setenv(VARIABLE, text, 1) : unsetenv(VARIABLE))
        return 1;
    host_start(1, 256 * MIB);
    tarn_library library = fake_register(0, true);
    if ((get(library)->workspace != NULL) != (expected == TARN_WORKSPACE_CACHED))
        return 3;
    setenv(VARIABLE, "library", 1);
    if (tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, &policy) || policy != expected)
        return 2;
    if (tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, &policy) ||
        policy != TARN_WORKSPACE_PER_CALL)
        return 4;
    return 0;
}

/* What is set before anything asks is not undone by the environment. */
static int set_first(void)
{
    tarn_workspace_policy policy = TARN_WORKSPACE_LIBRARY;
    setenv(VARIABLE, "library", 1);
    if (tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, &policy) ||
        policy != TARN_WORKSPACE_LIBRARY)
        return 1;
    return tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, &policy) ||
           policy != TARN_WORKSPACE_CACHED;
}

static void test_the_variable_names_the_policy(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tarn_workspace_policy policy;
    } cases[] = {
        {NULL, TARN_WORKSPACE_CACHED},         {"cached", TARN_WORKSPACE_CACHED},
        {"per_call", TARN_WORKSPACE_PER_CALL}, {"library", TARN_WORKSPACE_LIBRARY},
        {"", TARN_WORKSPACE_CACHED},           {"1", TARN_WORKSPACE_CACHED},
        {"library ", TARN_WORKSPACE_CACHED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text = cases[i].text;
        expected = cases[i].policy;
        assert_int_equal(in_child(policy_is), 0);
    }
    assert_int_equal(in_child(set_first), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_the_variable_names_the_policy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
