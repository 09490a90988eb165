/* arithmetic.c - element types, their sums and other reductions. Reductions of 16-bit floats accumulate in fp32 and round
 * once (a real ring rounds at every hop, so may differ in the last bit); those of FP8 are in fp8.c. */
#include <math.h>
#include <string.h>

#include "rccl.h"

size_t dtype_bytes(int dtype)
{
	static const uint8_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
	return dtype >= 0 && dtype < ncclNumTypes ? bytes[dtype] : 0;
}

float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
	if (exponent == 31)
		return bits_float(sign | 0x7f800000u | mantissa << 13);
	if (exponent == 0)
		return (sign != 0 ? -1.0f : 1.0f) * (float)mantissa * 0x1p-24f;
	return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t float_to_half(float f)
{
	uint32_t u = float_bits(f), sign = (u >> 16) & 0x8000;
	u &= 0x7fffffff;
	if (u > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (u >= 0x477ff000) /* rounds to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (u < 0x38800000) /* denormal */
		return (uint16_t)(sign | (uint32_t)lrintf(bits_float(u) * 0x1p24f));
	u += 0xfff + ((u >> 13) & 1);
	return (uint16_t)(sign | ((u - 0x38000000) >> 13));
}

static float bf16_to_float(uint16_t b) { return bits_float((uint32_t)b << 16); }

static uint16_t float_to_bf16(float f)
{
	uint32_t u = float_bits(f);
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)((u >> 16) | 0x40);
	return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static const float *half_table(void)
{
	static float table[65536];
	static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
	static bool filled;
	pthread_mutex_lock(&mu);
	if (!filled)
		for (uint32_t i = 0; i < 65536; i++)
			table[i] = half_to_float((uint16_t)i);
	filled = true;
	pthread_mutex_unlock(&mu);
	return table;
}

void to_float(int dtype, float *dst, const void *src, size_t count)
{
	const uint16_t *h = src;
	if (dtype == ncclFloat32) {
		memcpy(dst, src, count * sizeof *dst);
	} else if (dtype == ncclBfloat16) {
		for (size_t i = 0; i < count; i++)
			dst[i] = bf16_to_float(h[i]);
	} else {
		const float *table = half_table();
		for (size_t i = 0; i < count; i++)
			dst[i] = table[h[i]];
	}
}

void from_float(int dtype, void *dst, const float *src, size_t count)
{
	uint16_t *h = dst;
	if (dtype == ncclFloat32) {
		memcpy(dst, src, count * sizeof *src);
	} else if (dtype == ncclBfloat16) {
		for (size_t i = 0; i < count; i++)
			h[i] = float_to_bf16(src[i]);
	} else {
		for (size_t i = 0; i < count; i++)
			h[i] = float_to_half(src[i]);
	}
}

/* Unsigned arithmetic where a signed sum could overflow: two's complement is the same and overflow is defined. */
#define COMBINE(type, wrap)                                                                                            \
	static void combine_##type(int op, type *restrict acc, const type *restrict v, size_t count)                       \
	{                                                                                                                  \
		switch (op) {                                                                                                  \
		case ncclProd:                                                                                                 \
			for (size_t i = 0; i < count; i++)                                                                         \
				acc[i] = (type)((wrap)acc[i] * (wrap)v[i]);                                                            \
			break;                                                                                                     \
		case ncclMax:                                                                                                  \
			for (size_t i = 0; i < count; i++)                                                                         \
				acc[i] = v[i] > acc[i] ? v[i] : acc[i];                                                                \
			break;                                                                                                     \
		case ncclMin:                                                                                                  \
			for (size_t i = 0; i < count; i++)                                                                         \
				acc[i] = v[i] < acc[i] ? v[i] : acc[i];                                                                \
			break;                                                                                                     \
		default:                                                                                                       \
			for (size_t i = 0; i < count; i++)                                                                         \
				acc[i] = (type)((wrap)acc[i] + (wrap)v[i]);                                                            \
		}                                                                                                              \
	}                                                                                                                  \
	static void reduce_##type(int op, type *dst, const void *const *src, int n, size_t count)                          \
	{                                                                                                                  \
		for (size_t at = 0; at < count; at += BLOCK) {                                                                 \
			size_t m = count - at < BLOCK ? count - at : BLOCK;                                                        \
			memcpy(dst + at, (const type *)src[0] + at, m * sizeof *dst);                                              \
			for (int j = 1; j < n; j++)                                                                                \
				combine_##type(op, dst + at, (const type *)src[j] + at, m);                                            \
			if (op == ncclAvg)                                                                                         \
				for (size_t i = at; i < at + m; i++)                                                                   \
					dst[i] = (type)(dst[i] / (type)n);                                                                 \
		}                                                                                                              \
	}

COMBINE(float, float)
COMBINE(double, double)
COMBINE(int8_t, uint32_t)
COMBINE(uint8_t, uint32_t)
COMBINE(int32_t, uint32_t)
COMBINE(uint32_t, uint32_t)
COMBINE(int64_t, uint64_t)
COMBINE(uint64_t, uint64_t)

static void reduce_16bit(int dtype, int op, uint16_t *dst, const void *const *src, int n, size_t count)
{
	float acc[BLOCK], v[BLOCK];
	for (size_t at = 0; at < count; at += BLOCK) {
		size_t m = count - at < BLOCK ? count - at : BLOCK;
		to_float(dtype, acc, (const uint16_t *)src[0] + at, m);
		for (int j = 1; j < n; j++) {
			to_float(dtype, v, (const uint16_t *)src[j] + at, m);
			combine_float(op, acc, v, m);
		}
		if (op == ncclAvg)
			for (size_t i = 0; i < m; i++)
				acc[i] /= (float)n;
		from_float(dtype, dst + at, acc, m);
	}
}

/* reduce combines n sources into dst in the order of ranks, so that every run gives the same bits. */
void reduce(int dtype, int op, void *dst, const void *const *src, int n, size_t count)
{
	switch (dtype) {
	case ncclInt8: reduce_int8_t(op, dst, src, n, count); break;
	case ncclUint8: reduce_uint8_t(op, dst, src, n, count); break;
	case ncclInt32: reduce_int32_t(op, dst, src, n, count); break;
	case ncclUint32: reduce_uint32_t(op, dst, src, n, count); break;
	case ncclInt64: reduce_int64_t(op, dst, src, n, count); break;
	case ncclUint64: reduce_uint64_t(op, dst, src, n, count); break;
	case ncclFloat32: reduce_float(op, dst, src, n, count); break;
	case ncclFloat64: reduce_double(op, dst, src, n, count); break;
	case ncclFloat8e4m3:
	case ncclFloat8e5m2: fp8_reduce(dtype, op, dst, src, n, count, simrocm_config()->model->fp8_ocp); break;
	default: reduce_16bit(dtype, op, dst, src, n, count); break;
	}
}

/* corrupt is the wrong-data fault: one element in 64 is off by more than any tolerance. */
void corrupt(int dtype, void *data, size_t count)
{
	size_t bytes = dtype_bytes(dtype);
	for (size_t i = 0; i < count; i += 64) {
		char *p = (char *)data + i * bytes;
		if (dtype == ncclFloat32 || dtype == ncclFloat16 || dtype == ncclBfloat16) {
			float v;
			to_float(dtype, &v, p, 1);
			v = -v - 1;
			from_float(dtype, p, &v, 1);
		} else if (dtype == ncclFloat64) {
			double v;
			memcpy(&v, p, sizeof v);
			v = -v - 1;
			memcpy(p, &v, sizeof v);
		} else {
			*p ^= 0x15;
		}
	}
}
