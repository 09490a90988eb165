/* fp8.c - the two 8-bit floats as the hardware converts and the library adds them.
 * E4M3: FNUZ (bias 8, up to 240, NaN 0x80, no negative zero) on gfx942, OCP (bias 7, up to 448, NaN 0x7f) on gfx950.
 * E5M2: FNUZ (bias 16, up to 57344, NaN 0x80) on gfx942, OCP (bias 15, up to 57344, infinities) on gfx950.
 * Which one a build takes: rccl src/include/rccl_float8.h. Rounding is to nearest even, without scaling. Overflow gives
 * NaN, or infinity where there is one: the conversion does not saturate unless FP16_OVFL is set (inferred from the
 * kernels, which convert without a clamp; not seen on hardware). */
#include <math.h>

#include "rccl.h"

struct format {
	uint32_t mantissa_bits, bias, largest;
	bool ocp;
	uint8_t nan;
	bool infinite;
};

static const struct format formats[2][2] = {
	/* [E5M2][OCP] */
	{{3, 8, 0x7f, false, 0x80, false}, {3, 7, 0x7e, true, 0x7f, false}},
	{{2, 16, 0x7f, false, 0x80, false}, {2, 15, 0x7b, true, 0x7f, true}},
};

/* Without branches, so that the compiler makes vector code of a loop: random values would mispredict every second one. */
static inline uint8_t encode(float value, struct format f)
{
	uint32_t m = f.mantissa_bits, u = float_bits(value), sign = u >> 31 << 7, magnitude = u & 0x7fffffff;
	/* Below the smallest normal 2^(1-bias): a sum with 2^(24-m-bias) has the multiples of the smallest subnormal as its last
	 * bits, rounded to even by the addition. */
	uint32_t shifter = (151 - m - f.bias) << 23;
	uint32_t subnormal = float_bits(bits_float(magnitude) + bits_float(shifter)) - shifter;
	uint32_t even = (magnitude >> (23 - m)) & 1;
	uint32_t normal = ((magnitude + (1u << (22 - m)) - 1 + even) >> (23 - m)) - ((127 - f.bias) << m);
	uint32_t code = magnitude < (128 - f.bias) << 23 ? subnormal : normal;
	uint32_t over = f.infinite ? sign | (f.largest + 1) : f.nan;
	uint32_t coded = code == 0 && !f.ocp ? 0 : sign | code;
	coded = code > f.largest ? over : coded;
	return (uint8_t)(magnitude > 0x7f800000 ? f.nan : coded);
}

static float decode(uint8_t code, const struct format *f)
{
	uint32_t magnitude = code & 0x7f;
	if (f->infinite && magnitude == f->largest + 1)
		return code > 0x7f ? -INFINITY : INFINITY;
	if (f->ocp ? magnitude > f->largest : code == f->nan)
		return NAN;
	int exponent = (int)(magnitude >> f->mantissa_bits), one = 1 << f->mantissa_bits, mantissa = (int)magnitude & (one - 1);
	int unit = 1 - (int)f->bias - (int)f->mantissa_bits; /* exponent of the smallest subnormal */
	float v = exponent == 0 ? ldexpf((float)mantissa, unit) : ldexpf((float)(one + mantissa), unit + exponent - 1);
	return code > 0x7f ? -v : v;
}

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

static const float *decode_table(const struct format *f)
{
	static float table[2][2][256];
	static bool filled;
	pthread_mutex_lock(&mu);
	for (int e5m2 = 0; !filled && e5m2 < 2; e5m2++)
		for (int ocp = 0; ocp < 2; ocp++)
			for (int i = 0; i < 256; i++)
				table[e5m2][ocp][i] = decode((uint8_t)i, &formats[e5m2][ocp]);
	filled = true;
	pthread_mutex_unlock(&mu);
	return table[f->mantissa_bits == 2][f->ocp];
}

void fp8_encode_float(uint8_t *dst, const float *src, size_t count, bool ocp)
{
	const struct format f = formats[0][ocp];
	for (size_t i = 0; i < count; i++)
		dst[i] = encode(src[i], f);
}

void fp8_encode(int dtype, uint8_t *dst, const void *src, size_t count, bool ocp)
{
	float v[BLOCK];
	for (size_t at = 0; at < count; at += BLOCK) {
		size_t m = count - at < BLOCK ? count - at : BLOCK;
		to_float(dtype, v, (const char *)src + at * dtype_bytes(dtype), m);
		fp8_encode_float(dst + at, v, m, ocp);
	}
}

void fp8_decode(int dtype, void *dst, const uint8_t *src, size_t count, bool ocp)
{
	const float *table = decode_table(&formats[0][ocp]);
	float v[BLOCK];
	for (size_t at = 0; at < count; at += BLOCK) {
		size_t m = count - at < BLOCK ? count - at : BLOCK;
		for (size_t i = 0; i < m; i++)
			v[i] = table[src[at + i]];
		from_float(dtype, (char *)dst + at * dtype_bytes(dtype), v, m);
	}
}

void fp8_sum(float *acc, const uint8_t *const *src, int n, size_t count, bool ocp)
{
	const float *table = decode_table(&formats[0][ocp]);
	for (size_t i = 0; i < count; i++)
		acc[i] = table[src[0][i]];
	for (int j = 1; j < n; j++)
		for (size_t i = 0; i < count; i++)
			acc[i] += table[src[j][i]];
}

static float combined(int op, float a, float b, bool ocp)
{
	switch (op) {
	case ncclProd: return a * b;
	case ncclMax: return fmaxf(a, b);
	case ncclMin: return fminf(a, b);
	/* gfx950 adds as fp16, gfx942 as fp32 (rccl_float8.h hadd). */
	default: return ocp ? half_to_float(float_to_half(a + b)) : a + b;
	}
}

/* pair_table has the result of an operation for every two codes: there are only 65536. */
static const uint8_t *pair_table(int op, int e5m2, bool ocp)
{
	static uint8_t table[4][2][2][65536];
	static bool filled[4][2][2];
	const struct format *f = &formats[e5m2][ocp];
	const float *value = decode_table(f);
	int kind = op == ncclAvg ? ncclSum : op;
	uint8_t *t = table[kind][e5m2][ocp];
	pthread_mutex_lock(&mu);
	for (int i = 0; !filled[kind][e5m2][ocp] && i < 65536; i++)
		t[i] = encode(combined(kind, value[i >> 8], value[i & 255], ocp), *f);
	filled[kind][e5m2][ocp] = true;
	pthread_mutex_unlock(&mu);
	return t;
}

/* fp8_reduce combines in the order of ranks and rounds at every hop, as a ring does: with 3 bits of mantissa or fewer a
 * sum that rounded once would flatter. */
void fp8_reduce(int dtype, int op, void *dst, const void *const *src, int n, size_t count, bool ocp)
{
	int e5m2 = dtype == ncclFloat8e5m2;
	const uint8_t *pair = pair_table(op, e5m2, ocp);
	const float *value = decode_table(&formats[e5m2][ocp]);
	uint8_t *out = dst;
	for (size_t i = 0; i < count; i++) {
		uint8_t acc = ((const uint8_t *)src[0])[i];
		for (int j = 1; j < n; j++)
			acc = pair[acc << 8 | ((const uint8_t *)src[j])[i]];
		out[i] = op == ncclAvg ? encode(value[acc] / (float)n, formats[e5m2][ocp]) : acc;
	}
}
