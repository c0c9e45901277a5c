// Gathers rows out of memory that the device can read into memory of the device: any offsets, any lengths,
// any places. `build` in tools/ptx makes gather.ptx of it.
//
// A few lanes move a row together, in blocks of 16 bytes as they lie in the destination. What a block takes
// lies in one or two aligned words of the source; each word is read once, by one lane, and handed to the
// lane below it. A word is read only where the row has a byte of it, so that nothing is touched outside
// the 32-byte sectors of the row.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

const u64 WORD = 16;
// Rows that are longer are shared among several groups of lanes.
const u64 PART = 16384;
const u32 MOST_WINDOWS = 1024;

// Lanes that work together; a power of two.
struct Group {
    u32 lane, lanes, mask;

    __device__ Group(u32 lanes) : lanes(lanes) {
        u32 in_warp = threadIdx.x % 32;
        lane = in_warp % lanes;
        mask = (lanes == 32 ? 0xffffffffu : (1u << lanes) - 1) << (in_warp - lane);
    }

    __device__ u32 from(u32 value, u32 other) const { return __shfl_sync(mask, value, other, lanes); }
    __device__ u32 above(u32 value) const { return __shfl_down_sync(mask, value, 1, lanes); }
};

struct Span {
    u64 start, end;
};

// The word at `at`; zeros where the span has no byte of it.
__device__ uint4 word(u64 at, Span span) {
    if (at + WORD > span.start && at < span.end) return *(const uint4 *)at;
    return make_uint4(0, 0, 0, 0);
}

// The words of the lanes above; that of the last lane is the first of the words ahead.
__device__ uint4 above(const Group &group, uint4 words, uint4 ahead) {
    u32 x = group.above(words.x), y = group.above(words.y);
    u32 z = group.above(words.z), w = group.above(words.w);
    u32 first_x = group.from(ahead.x, 0), first_y = group.from(ahead.y, 0);
    u32 first_z = group.from(ahead.z, 0), first_w = group.from(ahead.w, 0);
    bool last = group.lane + 1 == group.lanes;
    return last ? make_uint4(first_x, first_y, first_z, first_w) : make_uint4(x, y, z, w);
}

// 16 bytes from `skew` bytes into two words on.
__device__ uint4 joined(uint4 low, uint4 high, u32 skew) {
    u32 a = low.x, b = low.y, c = low.z, d = low.w, e = high.x, f = high.y, g = high.z;
    if (skew & 8) a = c, b = d, c = e, d = f, e = g, f = high.w;
    if (skew & 4) a = b, b = c, c = d, d = e, e = f;
    u32 bits = skew % 4 * 8;
    return make_uint4(__funnelshift_r(a, b, bits), __funnelshift_r(b, c, bits),
                      __funnelshift_r(c, d, bits), __funnelshift_r(d, e, bits));
}

// Writes those bytes of a block that lie within the span.
__device__ void write(u64 block, uint4 bytes, Span span) {
    if (block >= span.start && block + WORD <= span.end) {
        *(uint4 *)block = bytes;
        return;
    }
    u32 words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (u32 i = 0; i < WORD; i++)
        if (block + i >= span.start && block + i < span.end)
            *(u8 *)(block + i) = (u8)(words[i / 4] >> i % 4 * 8);
}

__device__ void copy(const Group &group, u64 to, u64 from, u64 len) {
    Span source = {from, from + len}, destination = {to, to + len};
    // From a place in the destination to that in the source.
    u64 way = from - to;
    u32 skew = way % WORD;
    u64 first = to / WORD * WORD, step = group.lanes * WORD;
    u64 block = first + group.lane * WORD;
    u64 at = (block + way) / WORD * WORD;
    uint4 words = word(at, source);
    // As often for each lane, since they hand words to each other.
    for (u64 begin = first; begin < destination.end; begin += step) {
        at += step;
        uint4 ahead = word(at, source);
        uint4 bytes = skew == 0 ? words : joined(words, above(group, words, ahead), skew);
        if (block < destination.end) write(block, bytes, destination);
        block += step;
        words = ahead;
    }
}

__device__ u64 thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// A part of a row: where it lies, where it goes in the destination, how long it is.
struct Part {
    u64 from, to, len;
};

extern "C" __global__ void gather_parts(const Part *parts, u64 count, u32 lanes, u64 destination) {
    u64 at = thread() / lanes;
    if (at >= count) return;
    Part part = parts[at];
    copy(Group(lanes), destination + part.to, part.from, part.len);
}

// Rows of one length by their numbers, `stride` bytes from one to the next, in the order given, if any. One that
// does not exist is left out, and the place of the first such is told.
template <class Index>
__device__ void gather_rows(const Index *indices, const u32 *order, u64 count, u64 source, u64 stride,
                            u64 row_bytes, u64 rows, u32 lanes, u64 destination, u64 *wrong) {
    u64 parts = (row_bytes + PART - 1) / PART;
    u64 unit = thread() / lanes;
    u64 at = parts == 1 ? unit : unit / parts;
    if (at >= count) return;
    u64 skip = parts == 1 ? 0 : unit % parts * PART;
    if (order) at = order[at];
    u64 index = indices[at];
    Group group(lanes);
    if (index >= rows) {
        if (group.lane == 0) atomicMin(wrong, at);
        return;
    }
    u64 len = row_bytes - skip < PART ? row_bytes - skip : PART;
    copy(group, destination + at * row_bytes + skip, source + index * stride + skip, len);
}

extern "C" __global__ void gather_rows_u32(const u32 *indices, const u32 *order, u64 count, u64 source,
                                           u64 stride, u64 row_bytes, u64 rows, u32 lanes,
                                           u64 destination, u64 *wrong) {
    gather_rows(indices, order, count, source, stride, row_bytes, rows, lanes, destination, wrong);
}

extern "C" __global__ void gather_rows_u64(const u64 *indices, const u32 *order, u64 count, u64 source,
                                           u64 stride, u64 row_bytes, u64 rows, u32 lanes,
                                           u64 destination, u64 *wrong) {
    gather_rows(indices, order, count, source, stride, row_bytes, rows, lanes, destination, wrong);
}

// An order of rows in which those of one window of the source stand together. Three steps: how many rows
// each window has; where its part of the order starts; the order.

__device__ u32 window(u64 index, u64 stride, u32 shift, u32 windows) {
    u64 at = index * stride >> shift;
    // Whatever a wrong number gives.
    return at < windows ? (u32)at : windows - 1;
}

// Rows that a block of threads orders at once.
const u32 THREADS = 256, TILE = 16 * THREADS;

template <class Index>
__device__ void count_windows(const Index *indices, u64 count, u64 stride, u32 shift, u32 windows,
                              u32 *counts) {
    __shared__ u32 here[MOST_WINDOWS];
    for (u32 i = threadIdx.x; i < windows; i += THREADS) here[i] = 0;
    __syncthreads();
    u64 first = (u64)blockIdx.x * TILE;
    for (u64 at = first + threadIdx.x; at < first + TILE && at < count; at += THREADS)
        atomicAdd(&here[window(indices[at], stride, shift, windows)], 1);
    __syncthreads();
    for (u32 i = threadIdx.x; i < windows; i += THREADS)
        if (here[i]) atomicAdd(&counts[i], here[i]);
}

extern "C" __global__ void count_windows_u32(const u32 *indices, u64 count, u64 stride, u32 shift,
                                             u32 windows, u32 *counts) {
    count_windows(indices, count, stride, shift, windows, counts);
}

extern "C" __global__ void count_windows_u64(const u64 *indices, u64 count, u64 stride, u32 shift,
                                             u32 windows, u32 *counts) {
    count_windows(indices, count, stride, shift, windows, counts);
}

// One block of as many threads as there can be windows.
extern "C" __global__ void start_windows(u32 *counts, u32 windows) {
    __shared__ u32 sums[MOST_WINDOWS];
    u32 own = threadIdx.x < windows ? counts[threadIdx.x] : 0;
    sums[threadIdx.x] = own;
    for (u32 step = 1; step < MOST_WINDOWS; step *= 2) {
        __syncthreads();
        u32 before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    if (threadIdx.x < windows) counts[threadIdx.x] = sums[threadIdx.x] - own;
}

template <class Index>
__device__ void order_rows(const Index *indices, u64 count, u64 stride, u32 shift, u32 windows,
                           u32 *starts, u32 *order) {
    __shared__ u32 here[MOST_WINDOWS];
    for (u32 i = threadIdx.x; i < windows; i += THREADS) here[i] = 0;
    __syncthreads();
    u64 first = (u64)blockIdx.x * TILE;
    for (u64 at = first + threadIdx.x; at < first + TILE && at < count; at += THREADS)
        atomicAdd(&here[window(indices[at], stride, shift, windows)], 1);
    __syncthreads();
    for (u32 i = threadIdx.x; i < windows; i += THREADS)
        if (here[i]) here[i] = atomicAdd(&starts[i], here[i]);
    __syncthreads();
    for (u64 at = first + threadIdx.x; at < first + TILE && at < count; at += THREADS)
        order[atomicAdd(&here[window(indices[at], stride, shift, windows)], 1)] = (u32)at;
}

extern "C" __global__ void order_rows_u32(const u32 *indices, u64 count, u64 stride, u32 shift,
                                          u32 windows, u32 *starts, u32 *order) {
    order_rows(indices, count, stride, shift, windows, starts, order);
}

extern "C" __global__ void order_rows_u64(const u64 *indices, u64 count, u64 stride, u32 shift,
                                          u32 windows, u32 *starts, u32 *order) {
    order_rows(indices, count, stride, shift, windows, starts, order);
}
