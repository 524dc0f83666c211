/* UTF-8: every code point both ways, every sequence of two bytes and the edges of longer ones against the rule of
 * Unicode 3.9, sanitizing, incomplete tails. */
#include "unit/io_util.h"

#include "base/rng.h"
#include "base/utf8.h"

static void test_every_code_point(void **state)
{
    (void)state;
    for (int32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char s[4];
        int32_t back;
        if (cp == 0xD800) cp = 0xE000;
        size_t n = qp_utf8_encode(cp, s);
        assert_int_equal(n, cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
        assert_int_equal(qp_utf8_decode(s, n, &back), n);
        assert_int_equal(back, cp);
        for (size_t k = 1; k < n; k++) {
            assert_int_equal(qp_utf8_incomplete_tail(s, k), k);
            assert_int_equal(qp_utf8_decode(s, k, &back), k);
            assert_int_equal(back, -1);
        }
        assert_int_equal(qp_utf8_incomplete_tail(s, n), 0);
    }
}

/* The well-formed sequences, table 3-7 of the standard: whether s[0..n) is one, or the beginning of one. */
static int table_3_7(const unsigned char *s, size_t n, int prefix)
{
    static const unsigned char rows[][8] = {
        {0x00, 0x7F},
        {0xC2, 0xDF, 0x80, 0xBF},
        {0xE0, 0xE0, 0xA0, 0xBF, 0x80, 0xBF},
        {0xE1, 0xEC, 0x80, 0xBF, 0x80, 0xBF},
        {0xED, 0xED, 0x80, 0x9F, 0x80, 0xBF},
        {0xEE, 0xEF, 0x80, 0xBF, 0x80, 0xBF},
        {0xF0, 0xF0, 0x90, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
        {0xF1, 0xF3, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
        {0xF4, 0xF4, 0x80, 0x8F, 0x80, 0xBF, 0x80, 0xBF},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        size_t len = 1, k = 0;
        while (len < 4 && rows[r][2 * len + 1]) len++;
        if (prefix ? n >= len : n != len) continue;
        while (k < n && s[k] >= rows[r][2 * k] && s[k] <= rows[r][2 * k + 1]) k++;
        if (k == n) return 1;
    }
    return 0;
}

/* Length of the first item: a well-formed sequence, or the maximal subpart. */
static size_t first_item(const unsigned char *s, size_t n, int *ok)
{
    for (size_t k = 1; k <= n && k <= 4; k++) {
        *ok = 1;
        if (table_3_7(s, k, 0)) return k;
    }
    size_t best = 1;
    *ok = 0;
    for (size_t k = 1; k <= n && k < 4; k++)
        if (table_3_7(s, k, 1)) best = k;
    return best;
}

static void check(const unsigned char *s, size_t n)
{
    int32_t cp;
    int ok;
    size_t want = first_item(s, n, &ok), got = qp_utf8_decode((const char *)s, n, &cp);
    if (got != want || (cp >= 0) != ok)
        fail_msg("%02x %02x %02x (%zu bytes): %zu %d, wanted %zu %d", s[0], s[1], s[2], n, got, cp, want, ok);
}

static void test_every_short_sequence(void **state)
{
    (void)state;
    static const unsigned char edges[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF};
    unsigned char s[4] = {0};
    for (int a = 0; a < 256; a++) {
        s[0] = (unsigned char)a;
        check(s, 1);
        for (int b = 0; b < 256; b++) {
            s[1] = (unsigned char)b;
            check(s, 2);
            if (a < 0xE0) continue; /* later bytes do not matter */
            for (size_t c = 0; c < sizeof edges; c++) {
                s[2] = edges[c];
                check(s, 3);
                s[3] = edges[(c + (size_t)b) % sizeof edges];
                check(s, 4);
            }
        }
    }
}

static void test_sanitize(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain \xC3\xA9 \xF0\x9F\x98\x80", "plain \xC3\xA9 \xF0\x9F\x98\x80"},
        {"a\xFFz", "a\xEF\xBF\xBDz"},
        {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
        {"\xF0\x9F\x98z", "\xEF\xBF\xBDz"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qp_buf b = {0};
        qp_buf_adds(&b, "");
        qp_utf8_sanitize(&b, cases[i][0], strlen(cases[i][0]));
        assert_string_equal(b.data, cases[i][1]);
        qp_buf_deinit(&b);
    }
}

static void test_incomplete_tail(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        size_t tail;
    } cases[] = {{"", 0},
                 {"a", 0},
                 {"\xC3", 1},
                 {"a\xE2\x96", 2},
                 {"\xF0\x9F\x98", 3},
                 {"\x80", 0},
                 {"\x80\x80\x80", 0},
                 {"\xE0\x80", 0},
                 {"\xED\xA0", 0},
                 {"\xF4\x90", 0},
                 {"\xC3\xA9", 0},
                 {"\xFF", 0},
                 {"\xC0", 0},
                 {"\xC3\xA9\xE2", 1},
                 {"\xF0\x9F\x98\x80", 0},
                 {"\xF5", 0},
                 {"\xE2z", 0},
                 {"\xF0\x80\x80", 0},
                 {"\xF0\x90\x80", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(qp_utf8_incomplete_tail(cases[i].s, strlen(cases[i].s)), cases[i].tail);
}

/* Random bytes in random pieces: holding back the tail never changes the sanitized whole. */
static void test_pieces_join(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {'a', 0x80, 0x98, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xFF};
    qp_rng r = {3};
    for (int round = 0; round < 20000; round++) {
        char s[12];
        size_t n = qp_rng_u64(&r) % sizeof s, held = 0;
        qp_buf whole = {0}, joined = {0};
        for (size_t i = 0; i < n; i++) s[i] = (char)bytes[qp_rng_u64(&r) % sizeof bytes];
        qp_buf_adds(&whole, "");
        qp_buf_adds(&joined, "");
        qp_utf8_sanitize(&whole, s, n);
        for (size_t i = 0; i < n; i++) { /* s[held .. i] is waiting */
            size_t tail = qp_utf8_incomplete_tail(s + held, i + 1 - held), take = i + 1 - held - tail;
            qp_utf8_sanitize(&joined, s + held, take);
            held += take;
        }
        qp_utf8_sanitize(&joined, s + held, n - held);
        assert_string_equal(joined.data, whole.data);
        qp_buf_deinit(&whole);
        qp_buf_deinit(&joined);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point), cmocka_unit_test(test_every_short_sequence),
        cmocka_unit_test(test_sanitize),         cmocka_unit_test(test_incomplete_tail),
        cmocka_unit_test(test_pieces_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
