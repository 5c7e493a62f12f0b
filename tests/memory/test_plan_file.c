/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The file of a plan: what is refused of it, and how. */
#include "plan_test.h"

static void refused(const char *words)
{
    char wanted[400];
    const struct plan *plan = (const struct plan *)path;
    GIVES(plan_load("here", path, &plan), TARN_ERROR_CONFIGURATION);
    snprintf(wanted, sizeof wanted, "here: plan:%s: %s", path, words);
    check_at(strcmp(tarn_last_error(), wanted) == 0, wanted, __FILE__, __LINE__);
    CHECK(plan == (const struct plan *)path);
}

static void refused_header(struct plan_header header, const char *words)
{
    write_plan(header, four, LENGTH(four));
    refused(words);
}

static void refused_request(struct plan_request request, const char *words)
{
    struct plan_request requests[LENGTH(four)];
    memcpy(requests, four, sizeof requests);
    requests[1] = request;
    write_plan(header_of(LENGTH(four), 16 * MIB, 0), requests, LENGTH(four));
    refused(words);
}

static void what_is_no_plan_is_refused_where_it_is_wrong(void **state)
{
    (void)state;
    struct plan_header header = header_of(LENGTH(four), 16 * MIB, 0);
    write_file("", 0, "", 0);
    refused("byte 0: 0 bytes are not a tarn plan; tarn plan writes one");
    header.magic[0] = 'T';
    refused_header(header, "byte 0: this is not a tarn plan; tarn plan writes one");
    header = header_of(LENGTH(four), 16 * MIB, 0);
    header.version = htole32(4);
    refused_header(header, "byte 8: version is 4, and this tarn reads 1 to 3; write the plan again "
                           "with its tarn plan");
    header.version = 0;
    refused_header(header, "byte 8: version is 0, and this tarn reads 1 to 3; write the plan again "
                           "with its tarn plan");
    refused_header(header_of(0, 16 * MIB, 0),
                   "byte 12: requests is 0, but must be from 1 to 67108864");
    write_file(&header, sizeof header, four, sizeof four - 1);
    header = header_of(LENGTH(four), 16 * MIB, 0);
    write_file(&header, sizeof header, four, sizeof four - 1);
    refused("byte 12: requests is 4, for which the file's 111 bytes are not right");
    header.arena = htole64(16 * MIB - 1);
    refused_header(header, "byte 16: arena is 16777215, but must be a multiple of 512 up to 2 TiB");
    header = header_of(LENGTH(four), 16 * MIB, UINT64_MAX);
    refused_header(header, "byte 24: small is 18446744073709551615, but must be at most 1 EiB");
    header = header_of(LENGTH(four), 16 * MIB, 0);
    write_file(&header, sizeof header, four, sizeof four);
    refused("byte 56: the checksum is not that of the file, which was changed or cut; write it "
            "again with tarn plan");
    refused_request((struct plan_request)REQUEST(64 << 10, 0, 2),
                    "byte 76: the size of request 1 is 128 units, but must be above 128");
    refused_request((struct plan_request)REQUEST(4 * MIB, 13 * MIB, 2),
                    "byte 80: the place of request 1, 8192 units from 26624 on, is not within the "
                    "arena's 32768");
    refused_request((struct plan_request){UINT32_MAX, UINT32_MAX, 2},
                    "byte 80: the place of request 1, 4294967295 units from 4294967295 on, is not "
                    "within the arena's "
                    "32768");
    refused_request((struct plan_request)REQUEST(4 * MIB, 0, 1),
                    "byte 84: the end of request 1 is 1, but must be from 2 to 4");
    refused_request((struct plan_request)REQUEST(4 * MIB, 0, 5),
                    "byte 84: the end of request 1 is 5, but must be from 2 to 4");
}

static void several_arenas_are_refused_where_they_are_wrong(void **state)
{
    (void)state;
    const struct plan *plan = NULL;
    struct two two = two_of_four(1);
    write_two(two, sizeof two);
    OK(plan_load("here", path, &plan));
    CHECK(plan->header.behind == 1 && plan->next && !plan->next->next &&
          plan->next->requests[2].size == UNITS(6 * MIB));
    write_two(two, sizeof two - 1);
    refused("byte 124: requests is 4, for which the file's 223 bytes are not right");
    write_two(two, 160);
    refused("byte 112: 48 bytes are not a tarn plan; tarn plan writes one");
    two.second.magic[0] = 'T';
    write_two(two, sizeof two);
    refused("byte 112: this is not a tarn plan; tarn plan writes one");
    two = two_of_four(1);
    two.second.version = htole32(1);
    write_two(two, sizeof two);
    refused("byte 120: version is 1, but that of the first arena is 2");
    two.second.version = htole32(9);
    write_two(two, sizeof two);
    refused("byte 120: version is 9, and this tarn reads 1 to 3; write the plan again with its "
            "tarn plan");
    two = two_of_four(2);
    write_two(two, sizeof two);
    refused("byte 160: arenas behind is 0, but must be 1");
    write_two(two_of_four(32), sizeof two);
    refused("byte 48: arenas behind is 32, but must be below 32");
    two = two_of_four(1);
    two.others[1].size = 0;
    write_two(two, sizeof two);
    refused("byte 188: the size of request 1 is 0 units, but must be above 128");
    two = two_of_four(0);
    write_two(two, sizeof two);
    refused("byte 12: requests is 4, for which the file's 224 bytes are not right");
    two = two_of_four(1);
    two.first.version = htole32(1); /* of one arena */
    write_two(two, sizeof two);
    refused("byte 12: requests is 4, for which the file's 224 bytes are not right");
}

/* Pools are numbered in the order of the arenas; versions without them do not look at the
 * number. */
static void pools_are_refused_where_they_are_wrong(void **state)
{
    (void)state;
    const struct plan *plan = NULL;
    struct two two = two_of_four(1);
    two.first.pool = two.second.pool = htole32(77);
    write_two(two, sizeof two);
    OK(plan_load("here", path, &plan));
    CHECK(plan->header.pool == 0 && plan->next->header.pool == 0);
    two.first.version = two.second.version = htole32(PLAN_VERSION_POOLS);
    write_two(two, sizeof two);
    refused("byte 52: pool is 77, but must be from 0 to 1");
    two.first.pool = htole32(2);
    write_two(two, sizeof two);
    refused("byte 52: pool is 2, but must be from 0 to 1");
    two.first.pool = 0;
    two.second.pool = htole32(2);
    write_two(two, sizeof two);
    refused("byte 164: pool is 2, but must be from 0 to 1");
    two.first.pool = htole32(1);
    for (uint32_t pool = 0; pool <= 2; pool++) {
        two.second.pool = htole32(pool);
        write_two(two, sizeof two);
        OK(plan_load("here", path, &plan));
        CHECK(plan->header.pool == 1 && plan->next->header.pool == pool);
    }
    two.second.pool = htole32(3);
    write_two(two, sizeof two);
    refused("byte 164: pool is 3, but must be from 0 to 2");
    two = two_of_four(1);
    two.second.version = htole32(PLAN_VERSION_POOLS);
    write_two(two, sizeof two);
    refused("byte 120: version is 3, but that of the first arena is 2");
    two = two_of_four(0);
    two.first.version = htole32(PLAN_VERSION_POOLS);
    two.first.pool = htole32(1);
    two.first.checksum = htole64(plan_checksum(&two.first, two.requests));
    write_file(&two, 112, NULL, 0); /* one arena, of a pool */
    OK(plan_load("here", path, &plan));
    CHECK(plan->header.pool == 1 && !plan->next);
}

static void a_path_that_is_not_a_file_is_refused(void **state)
{
    (void)state;
    const struct plan *plan = NULL;
    GIVES(plan_load("here", "/nowhere/plan", &plan), TARN_ERROR_CONFIGURATION);
    CHECK(strcmp(tarn_last_error(),
                 "here: plan:/nowhere/plan: cannot open: No such file or directory") == 0);
    GIVES(plan_load("here", "/dev/null", &plan), TARN_ERROR_CONFIGURATION);
    CHECK(strcmp(tarn_last_error(),
                 "here: plan:/dev/null: this is not a file; tarn plan writes one") == 0);
}

static void a_plan_without_host_memory_is_refused(void **state)
{
    (void)state;
    write_plan(header_of(LENGTH(four), 16 * MIB, 0), four, LENGTH(four));
    for (uint64_t n = 1; n <= 4; n++) {
        const struct plan *plan = NULL;
        pages_fail(n, false);
        tarn_status status = plan_load("here", path, &plan);
        pages_fail(0, false);
        CHECK(status == TARN_ERROR_OUT_OF_HOST_MEMORY && !plan);
    }
    const struct plan *plan = NULL;
    OK(plan_load("here", path, &plan));
    CHECK(plan->header.count == 4 && plan->requests[2].end == 4);
    static const uint32_t by_offset[] = {0, 1, 2, 3};
    CHECK(plan->by_offset[0] == 0 && plan->by_offset[3] == by_offset[3]);
    CHECK(plan->latest[0] == 4);
}

static void settings_with_a_plan_that_is_refused_change_nothing(void)
{
    struct plan_header header = header_of(LENGTH(four), 16 * MIB, 0);
    char text[96];
    write_file(&header, sizeof header, four, sizeof four);
    snprintf(text, sizeof text, "compaction:on_oom,plan: %s ", path);
    GIVES(tarn_configuration_set(text), TARN_ERROR_CONFIGURATION);
    CHECK(strstr(tarn_last_error(), "tarn_configuration_set(): plan:/tmp/"));
    OK(tarn_configuration_get(text, sizeof text, NULL));
    CHECK(strcmp(text, "all:default") == 0 && !atomic_load(&plan_now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_plan_is_refused_where_it_is_wrong),
        cmocka_unit_test(several_arenas_are_refused_where_they_are_wrong),
        cmocka_unit_test(pools_are_refused_where_they_are_wrong),
        cmocka_unit_test(a_path_that_is_not_a_file_is_refused),
        cmocka_unit_test(a_plan_without_host_memory_is_refused),
        CHILD_TEST(settings_with_a_plan_that_is_refused_change_nothing),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
