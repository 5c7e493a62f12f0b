/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The treap against a sorted array. */
#include "base/tree.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NODES 1000
#define OPERATIONS 100000

struct item {
    uint64_t key;
    struct tree_node node;
    bool present;
};

static struct item items[NODES];

#define ITEM(tree_node) TREE_ENTRY(tree_node, struct item, node)

/* By key, equal keys by address. */
static int compare(const struct item *x, const struct item *y)
{
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int order(const struct tree_node *a, const struct tree_node *b)
{
    return compare(ITEM(a), ITEM(b));
}

static bool is_at_least(const struct tree_node *node, uint64_t key)
{
    return ITEM(node)->key >= key;
}

static const struct item *sorted[NODES];
static size_t sorted_count;

/* The first place in the array whose item is not before `item`. */
static size_t place_of(const struct item *item)
{
    size_t place = 0;
    while (place < sorted_count && compare(sorted[place], item) < 0)
        place++;
    return place;
}

static void sorted_insert(const struct item *item)
{
    size_t place = place_of(item);
    memmove(&sorted[place + 1], &sorted[place], (sorted_count++ - place) * sizeof *sorted);
    sorted[place] = item;
}

static void sorted_remove(const struct item *item)
{
    size_t place = place_of(item);
    memmove(&sorted[place], &sorted[place + 1], (--sorted_count - place) * sizeof *sorted);
}

static const struct item *sorted_find(uint64_t key)
{
    for (size_t i = 0; i < sorted_count; i++)
        if (sorted[i]->key >= key)
            return sorted[i];
    return NULL;
}

static const struct item *item_or_null(const struct tree_node *node)
{
    return node ? ITEM(node) : NULL;
}

static void check_walks(const struct tree *tree)
{
    size_t place = 0;
    for (struct tree_node *node = tree_first(tree); node; node = tree_next(node))
        CHECK(place < sorted_count && ITEM(node) == sorted[place++]);
    CHECK(place == sorted_count);
    for (struct tree_node *node = tree_last(tree); node; node = tree_previous(node))
        CHECK(place > 0 && ITEM(node) == sorted[--place]);
    CHECK(place == 0);
}

static unsigned depth(const struct tree_node *node)
{
    if (!node)
        return 0;
    unsigned left = depth(node->left), right = depth(node->right);
    return 1 + (left > right ? left : right);
}

static void a_tree_holds_what_a_sorted_array_holds(void **state)
{
    (void)state;
    uint64_t random = 1;
    struct tree tree = {.order = order};
    for (int step = 0; step < OPERATIONS; step++) {
        struct item *item = &items[random_next(&random) % NODES];
        uint64_t key = random_next(&random) % 500; /* so that there are equal ones */
        switch (random_next(&random) % 4) {
        case 0:
            CHECK(item_or_null(tree_find_first(&tree, is_at_least, key)) == sorted_find(key));
            break;
        default:
            if (item->present) {
                tree_remove(&tree, &item->node);
                sorted_remove(item);
            } else {
                item->key = key;
                tree_insert(&tree, &item->node);
                sorted_insert(item);
            }
            item->present = !item->present;
        }
        if (step % 500 == 0)
            check_walks(&tree);
    }
    check_walks(&tree);
    while (tree.root)
        tree_remove(&tree, tree.root);
    CHECK(!tree_first(&tree) && !tree_last(&tree));
    CHECK(!tree_find_first(&tree, is_at_least, 0));
}

static void ascending_keys_do_not_make_a_list_of_a_tree(void **state)
{
    (void)state;
    struct tree tree = {.order = order};
    for (size_t i = 0; i < NODES; i++) {
        items[i].key = i;
        tree_insert(&tree, &items[i].node);
    }
    /* 1000 nodes need 10 levels; a treap of random priorities has about 22 and practically never
     * above 60 */
    CHECK(depth(tree.root) < 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_holds_what_a_sorted_array_holds),
        cmocka_unit_test(ascending_keys_do_not_make_a_list_of_a_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
