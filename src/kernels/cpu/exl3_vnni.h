/* EXL3, level vnni: windows and states of a tile. Internal to exl3_*_vnni.c; needs AVX-512 F, BW, VL, DQ, VNNI, VBMI.
 *
 * One vpermb turns the load of a group (exl3_zmm.h) into 8 qword windows whose top byte is stream byte floor(q K) - 2:
 * the byte order inside the words is big-endian so that stream bits are consecutive. One vpmultishiftqb then cuts four
 * 16-bit states out of every qword: 32 states an instruction, no masks. A window of 64 bits holds all eight states of a
 * lane up to K = 6; K = 7 takes two; K = 8 has its states on byte borders and needs no shift. */
#ifndef QP_KERNELS_CPU_EXL3_VNNI_H
#define QP_KERNELS_CPU_EXL3_VNNI_H

#include "kernels/cpu/exl3_zmm.h"

/* Place in the load of byte p (7: top) of the window of lane q, off bytes later than floor(q K) - 2. */
#define WIN_BYTE(K2, q, off, p) ((((q) * (K2) / 2 + 2 + (off) + 7 - (p)) ^ 3) & 63)
/* The same in a load of the whole tile (K <= 2), group g: stream byte modulo the tile's bytes. */
#define RING_BYTE(K2, g, q, p) (((((g)*4 * (K2) + (q) * (K2) / 2 - 2 + 7 - (p) + 16 * (K2)) % (16 * (K2))) ^ 3) & 63)
/* K = 8: byte i of state word i / 2 of lane q: load from one word before the group (first four states) or at it. */
#define BYTE8A(q, i) ((((q)*8 + (i) / 2 - ((i)&1)) + 4) ^ 3)
#define BYTE8B(q, i) (((q)*8 + 4 + (i) / 2 - ((i)&1)) ^ 3)
#define OF8(F, ...)                                                                                                    \
    F(__VA_ARGS__, 0), F(__VA_ARGS__, 1), F(__VA_ARGS__, 2), F(__VA_ARGS__, 3), F(__VA_ARGS__, 4), F(__VA_ARGS__, 5),  \
        F(__VA_ARGS__, 6), F(__VA_ARGS__, 7)
#define WIN_TABLE(K2, off)                                                                                             \
    {                                                                                                                  \
        OF8(WIN_BYTE, K2, 0, off), OF8(WIN_BYTE, K2, 1, off), OF8(WIN_BYTE, K2, 2, off), OF8(WIN_BYTE, K2, 3, off),    \
            OF8(WIN_BYTE, K2, 4, off), OF8(WIN_BYTE, K2, 5, off), OF8(WIN_BYTE, K2, 6, off), OF8(WIN_BYTE, K2, 7, off) \
    }
#define RING_TABLE(K2, g)                                                                                              \
    {                                                                                                                  \
        OF8(RING_BYTE, K2, g, 0), OF8(RING_BYTE, K2, g, 1), OF8(RING_BYTE, K2, g, 2), OF8(RING_BYTE, K2, g, 3),        \
            OF8(RING_BYTE, K2, g, 4), OF8(RING_BYTE, K2, g, 5), OF8(RING_BYTE, K2, g, 6), OF8(RING_BYTE, K2, g, 7)     \
    }
#define TABLE8(F)                                                                                                      \
    {                                                                                                                  \
        OF8(F, 0), OF8(F, 1), OF8(F, 2), OF8(F, 3), OF8(F, 4), OF8(F, 5), OF8(F, 6), OF8(F, 7)                         \
    }

static const uint8_t vnni_ring[3][4][64] = {
    {RING_TABLE(2, 0), RING_TABLE(2, 1), RING_TABLE(2, 2), RING_TABLE(2, 3)},
    {RING_TABLE(3, 0), RING_TABLE(3, 1), RING_TABLE(3, 2), RING_TABLE(3, 3)},
    {RING_TABLE(4, 0), RING_TABLE(4, 1), RING_TABLE(4, 2), RING_TABLE(4, 3)},
};
static const uint8_t vnni_window[6][64] = {WIN_TABLE(5, 0), WIN_TABLE(6, 0),  WIN_TABLE(7, 0),
                                           WIN_TABLE(8, 0), WIN_TABLE(10, 0), WIN_TABLE(12, 0)};
static const uint8_t vnni_window7[2][64] = {WIN_TABLE(14, 0), WIN_TABLE(14, 4)};
static const uint8_t vnni_window8[2][64] = {TABLE8(BYTE8A), TABLE8(BYTE8B)};

/* Index vectors of one rate, in registers for the length of a loop. */
typedef struct vnni_win {
    __m512i idx[4];
} vnni_win;

QP_INLINE vnni_win vnni_win_load(const int K2)
{
    vnni_win w;
    memset(&w, 0, sizeof w);
    if (K2 <= 4) {
        for (int g = 0; g < 4; g++) w.idx[g] = _mm512_loadu_si512(vnni_ring[K2 - 2][g]);
    } else if (K2 <= 12) {
        w.idx[0] = _mm512_loadu_si512(vnni_window[K2 <= 8 ? K2 - 5 : K2 / 2 - 1]);
    } else {
        for (int i = 0; i < 2; i++) w.idx[i] = _mm512_loadu_si512(K2 == 14 ? vnni_window7[i] : vnni_window8[i]);
    }
    return w;
}

/* The windows of group g: all eight states of a lane in *a (K <= 6, b then equals a), or four each (K = 7, 8). */
QP_INLINE void vnni_windows(const int K2, const uint8_t *tile, const int g, const vnni_win *w, __m512i *a, __m512i *b)
{
    if (K2 <= 4) {
        const __m512i t =
            K2 == 4 ? _mm512_loadu_si512(tile) : _mm512_maskz_loadu_epi32((__mmask16)((1u << 4 * K2) - 1), tile);
        *a = *b = _mm512_permutexvar_epi8(w->idx[g], t);
    } else if (K2 <= 12) {
        *a = *b = _mm512_permutexvar_epi8(w->idx[0], zmm_group_load(K2, tile, g));
    } else {
        const __m512i t = zmm_group_load(K2, tile, g);
        *a = _mm512_permutexvar_epi8(w->idx[0], t);
        *b = _mm512_permutexvar_epi8(w->idx[1], K2 == 14 ? t : _mm512_loadu_si512(tile + 64 * g));
    }
}

/* Bit of a window where state j (0 .. 7) of a lane begins; odd: the lane's index is odd (half rates start on nibbles
 * there). K = 7: the second window starts four bytes later. K = 8: windows are the states. */
QP_INLINE int vnni_state_bit(const int K2, const int j, const int odd)
{
    if (K2 == 16) return j % 4 * 16;
    return 48 - 4 * (odd & K2 & 1) - (j + 1) * K2 / 2 + (K2 == 14 && j >= 4 ? 32 : 0);
}

/* Control qword that cuts states j0 .. j0 + 3. */
QP_INLINE long long vnni_shift4(const int K2, const int j0, const int odd)
{
    unsigned long long c = 0;
    for (int j = 0; j < 4; j++) {
        const unsigned long long s = (unsigned)vnni_state_bit(K2, j0 + j, odd);
        c |= (s | (s + 8) << 8) << 16 * j;
    }
    return (long long)c;
}

QP_INLINE __m512i vnni_ctrl4(const int K2, const int j0)
{
    const long long e = vnni_shift4(K2, j0, 0), o = vnni_shift4(K2, j0, 1);
    return _mm512_set_epi64(o, e, o, e, o, e, o, e);
}

/* What the integer paths keep in registers. */
typedef struct lv_i16 {
    vnni_win win;
    __m512i ctrl[2];
    zmm_mul1 m;
} lv_i16;

QP_INLINE lv_i16 lv_i16_load(const int K2)
{
    const lv_i16 c = {vnni_win_load(K2), {vnni_ctrl4(K2, 0), vnni_ctrl4(K2, 4)}, zmm_mul1_load()};
    return c;
}

/* Byte sums of group g: words of qword q are rows 2 (q % 4) + {0, 1, 8, 9}; b[0]: columns 2g, 2g + 1; b[1]: 8 more. */
QP_INLINE void lv_group_bytesums(const int K2, const uint8_t *tile, const int g, const lv_i16 *c, __m512i b[2])
{
    __m512i w0, w1;
    vnni_windows(K2, tile, g, &c->win, &w0, &w1);
    b[0] = zmm_bytesum(K2 == 16 ? w0 : _mm512_multishift_epi64_epi8(c->ctrl[0], w0), &c->m);
    b[1] = zmm_bytesum(K2 == 16 ? w1 : _mm512_multishift_epi64_epi8(c->ctrl[1], w1), &c->m);
}

enum { LV_GEMM_ROWS = 12 };

QP_INLINE qp_v16si lv_dot(qp_v16si acc, __m512i w, __m512i x)
{
    return (qp_v16si)_mm512_dpwssd_epi32((__m512i)acc, w, x);
}

/* ---- for the fp32 path ---- */
typedef vnni_win lv_f32;

QP_INLINE lv_f32 lv_f32_load(const int K2)
{
    return vnni_win_load(K2);
}

QP_INLINE void lv_windows(const int K2, const uint8_t *tile, const int g, const lv_f32 *c, __m512i *a, __m512i *b)
{
    vnni_windows(K2, tile, g, c, a, b);
}

/* From transposed windows of the lanes i mod 4: state j in the even, state j + 4 in the odd dwords. */
QP_INLINE __m512i lv_states16(const int K2, __m512i a, __m512i b, const int i, const int j)
{
    const unsigned long long s = (unsigned)vnni_state_bit(K2, j, i), s4 = (unsigned)vnni_state_bit(K2, j + 4, i);
    const __m512i ctrl = _mm512_set1_epi64((long long)(s | (s + 8) << 8 | s4 << 32 | (s4 + 8) << 40));
    if (K2 <= 12) return _mm512_maskz_multishift_epi64_epi8(0x3333333333333333, ctrl, a);
    return _mm512_mask_multishift_epi64_epi8(_mm512_maskz_multishift_epi64_epi8(0x0303030303030303, ctrl, a),
                                             0x3030303030303030, ctrl, b);
}

/* base + the sum of the four bytes of each dword */
QP_INLINE __m512i lv_bytesum32(__m512i x, __m512i base)
{
    return _mm512_dpbusd_epi32(base, x, _mm512_set1_epi8(1));
}

#endif
