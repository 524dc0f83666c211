/* The byte cursor: values, the sticky failure, lengths that would wrap. */
#include "unit/io_util.h"

#include "io/reader.h"

static void test_values(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xFF, 0x80};
    qp_reader r;
    qp_reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(qp_reader_u8(&r), 1);
    assert_int_equal(qp_reader_u16(&r), 0x0302);
    assert_int_equal(qp_reader_u32(&r), 0x07060504);
    assert_true(qp_reader_u64(&r) == 0x0F0E0D0C0B0A0908u);
    assert_int_equal(qp_reader_left(&r), 2);
    assert_ptr_equal(qp_reader_bytes(&r, 2), bytes + 15);
    assert_int_equal(qp_reader_left(&r), 0);
    assert_ptr_equal(qp_reader_bytes(&r, 0), bytes + 17);
    assert_false(r.failed);
}

static void test_failure_is_sticky(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {1, 2, 3};
    qp_reader r;
    qp_reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(qp_reader_u32(&r), 0);
    assert_true(r.failed);
    assert_int_equal(r.pos, 0);
    assert_int_equal(qp_reader_u8(&r), 0); /* though bytes are there */
    assert_null(qp_reader_bytes(&r, 0));
    assert_int_equal(qp_reader_left(&r), 0);
}

static void test_huge_lengths(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {1, 2, 3};
    for (size_t n = SIZE_MAX - 4; n != 4; n++) {
        qp_reader r;
        qp_reader_init(&r, bytes, sizeof bytes);
        qp_reader_u8(&r);
        if (n <= 2)
            assert_non_null(qp_reader_bytes(&r, n));
        else
            assert_null(qp_reader_bytes(&r, n));
    }
    qp_reader r;
    qp_reader_init(&r, NULL, 0);
    assert_int_equal(qp_reader_u8(&r), 0);
    assert_true(r.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_failure_is_sticky),
                                       cmocka_unit_test(test_huge_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
