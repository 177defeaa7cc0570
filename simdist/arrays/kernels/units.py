"""Units: a GPU's matrix units, which multiply what a warp has in its registers; and copies to shared memory.

Lane 4 g + c of a warp holds of each matrix two adjacent 16-bit items in a register, or two adjacent sums:

    a    16 x 16    registers that begin at (g, 2c)  (g + 8, 2c)  (g, 2c + 8)  (g + 8, 2c + 8), along a row
    b    16 x 8     registers that begin at (2c, g)  (2c + 8, g), along a column
    d    16 x 8     sums (g, 2c)  (g, 2c + 1)  (g + 8, 2c)  (g + 8, 2c + 1)

So the sums of two products side by side, rounded, are the factor a of the next one.

Source: NVIDIA, PTX ISA, sections on mma.m16n8k16, ldmatrix, and cp.async.
"""

__all__ = ["LEAST_CAPABILITY", "UNITS"]

LEAST_CAPABILITY = 80
"""The compute capability, times ten, of the first GPUs that have all of these instructions (Ampere)."""

UNITS = r"""
// d += a b
__device__ inline void multiply(float* d, const unsigned* a, const unsigned* b, bfloat) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void multiply(float* d, const unsigned* a, const unsigned* b, half16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two items, rounded, in one register.
__device__ inline unsigned pair(float first, float second, bfloat) {
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
}
__device__ inline unsigned pair(float first, float second, half16) {
    unsigned y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
}

// 2 to the power x, 0 where that is less than the least normal number.
__device__ inline float power(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

// Four matrices of 8 x 8 items from shared memory: lane 8 i + j names row j of matrix i. A register gets of each
// (g, 2c) and (g, 2c + 1), or, transposed, (2c, g) and (2c + 1, g).
__device__ inline void load(unsigned* r, const void* row) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ inline void load_transposed(unsigned* r, const void* row) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// Start to copy 16 or 4 bytes to shared memory, zeros if they are not there; wait for all copies of this thread.
__device__ inline void copy16(void* to, const void* from, bool there) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ inline void copy4(void* to, const void* from, bool there) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(at), "l"(from), "r"(there ? 4 : 0) : "memory");
}
__device__ inline void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
"""
