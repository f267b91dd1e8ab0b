// SPDX-License-Identifier: Apache-2.0
// simt.cpp -- the executor.  Compile WITHOUT -fsanitize=thread (define RONDO_SIMT_TSAN=1 for TSan builds):
// its own bookkeeping is shared by all lanes of one OS thread and must not be seen as racing.
#include "kernels/simt/scheduler.hpp"
#include <sched.h>
#include <time.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include "kernels/simt/fiber.hpp"
#include "kernels/simt/lane_api.hpp"

namespace rondo::simt {

constinit thread_local LaneHead* t_lane = nullptr;

enum class St : uint8_t { Ready, Running, Parked, Barrier, Warp, Done };
static const char* st_name[] = {"ready", "running", "parked", "barrier", "warp", "done"};

struct Warp;
struct Block;
struct Grid;
struct Pending {
  void* addr;
  uint32_t size;
  uint64_t v;
};
struct PendBuf {
  Pending* e = nullptr;
  unsigned n = 0, cap = 0;
};

struct Lane : LaneHead {
  Fiber fiber;
  Block* blk = nullptr;
  Warp* warp = nullptr;
  unsigned lid = 0;  // lane in warp
  St st = St::Ready;
  uint32_t ready_pos = 0;  // index in the ready array
  int32_t parked_pos = -1;
  Watch w{};
  const Watch* also = nullptr;  // park_any: more of them, on the lane's own stack
  unsigned nalso = 0;
  const uint32_t* abort_flag = nullptr;
  const char* file = nullptr;
  unsigned line = 0;
  unsigned bar_id = 0;
  WarpOperation coll{};
  uint32_t cmask = 0;
  uint64_t cval = 0, cres = 0;
  uint32_t carg = 0;
  bool carrived = false;
  uint64_t prio = 0;
  PendBuf pend;
};
struct Warp {
  Lane* lanes[32] = {};
  unsigned n = 0;
  unsigned gen[32] = {};
  char key[32][2];
};
struct Bar {
  unsigned arrived = 0, expected = 0;
  unsigned gen = 0;
  char key[2];
  bool orv[2];
  const char* file = nullptr;
  unsigned line = 0;
};
struct SharedVar {
  const void* key;
  uint32_t off, size;
};
struct Block {
  Grid* grid = nullptr;
  Lane* lanes = nullptr;
  Warp* warps = nullptr;
  unsigned n = 0, alive = 0;
  Bar bar[16];
  SharedVar sv[32];
  unsigned nsv = 0;
  uint32_t used = 0;
  char* smem = nullptr;
  void* dyn = nullptr;
  PendBuf pend;
};
struct Grid {
  const char* name;
  int rank;
  Block* blocks;
  unsigned nblocks;
  void (*fn)(void*);
  void* arg;
  char key0, key1;
  size_t shmem;
  Grid* next;
  int id;
  unsigned alive;
};

class Machine {
 public:
  Options o;
  Fiber main;
  Grid* grids = nullptr;
  Lane** ready = nullptr;
  uint32_t nready = 0, rr = 0;
  Lane** parked = nullptr;
  uint32_t nparked = 0;
  uint32_t cap = 0, total = 0, live = 0;
  uint64_t s[2];
  uint64_t steps = 0, switches = 0;
  uint64_t next_change = 0;
  unsigned changes_left = 0;
  Status status = Status::ok;
  char why[512] = {0};
  Lane* culprit = nullptr;
  bool event = false, stuck = false;
  int ngrids = 0;

  uint64_t rnd() {  // xoroshiro128+
    uint64_t a = s[0], b = s[1], r = a + b;
    b ^= a;
    s[0] = ((a << 24) | (a >> 40)) ^ b ^ (b << 16);
    s[1] = (b << 37) | (b >> 27);
    return r;
  }
  uint64_t below(uint64_t n) { return (uint64_t)(((unsigned __int128)rnd() * n) >> 64); }
  bool pct() const { return o.policy >= Policy::pct_lane; }

  void push_ready(Lane* l) {
    l->st = St::Ready;
    l->ready_pos = nready;
    ready[nready++] = l;
  }
  void drop_ready(Lane* l) {  // keeps round-robin order good enough
    Lane* m = ready[--nready];
    ready[l->ready_pos] = m;
    m->ready_pos = l->ready_pos;
  }
  void push_parked(Lane* l) {
    l->st = St::Parked;
    l->parked_pos = (int32_t)nparked;
    parked[nparked++] = l;
  }
  void unpark(Lane* l) {
    Lane* m = parked[--nparked];
    parked[l->parked_pos] = m;
    m->parked_pos = l->parked_pos;
    l->parked_pos = -1;
    push_ready(l);
  }
  static bool changed(const Lane* l) {
    if (l->abort_flag && __atomic_load_n(l->abort_flag, __ATOMIC_RELAXED)) return true;
    if (changed(l->w)) return true;
    for (unsigned k = 0; k < l->nalso; k++)
      if (changed(l->also[k])) return true;
    return false;
  }
  static bool changed(const Watch& w) {
    for (uint32_t i = 0; i < w.bytes; i += 4) {
      uint32_t seen;
      memcpy(&seen, w.seen + i, 4);
      if (__atomic_load_n((const uint32_t*)((const char*)w.word + i), __ATOMIC_RELAXED) != seen) return true;
    }
    return false;
  }
  static bool watches(const Lane* l, uintptr_t ln) {  // any word of this 128-byte line
    if (((uintptr_t)l->w.word >> 7) == ln) return true;
    for (unsigned k = 0; k < l->nalso; k++)
      if (((uintptr_t)l->also[k].word >> 7) == ln) return true;
    return false;
  }
  bool poll_parked() {
    bool any = false;
    for (uint32_t i = 0; i < nparked;) {
      Lane* l = parked[i];
      if (changed(l)) {
        unpark(l);
        any = true;
      } else
        ++i;
    }
    return any;
  }
  uint64_t unit_prio(Lane* l) {  // PCT priority unit
    switch (o.policy) {
      case Policy::pct_lane:
        return l->prio;
      case Policy::pct_warp:
        return l->warp->lanes[0]->prio;
      case Policy::pct_block:
        return l->blk->lanes[0].prio;
      default:
        return l->blk->grid->blocks[0].lanes[0].prio;
    }
  }
  void set_unit_prio(Lane* l, uint64_t v) {
    switch (o.policy) {
      case Policy::pct_lane:
        l->prio = v;
        break;
      case Policy::pct_warp:
        l->warp->lanes[0]->prio = v;
        break;
      case Policy::pct_block:
        l->blk->lanes[0].prio = v;
        break;
      default:
        l->blk->grid->blocks[0].lanes[0].prio = v;
        break;
    }
  }
  Lane* choose() {  // from ready[], nready > 0
    if (o.policy == Policy::round_robin) {
      if (rr >= nready) rr = 0;
      return ready[rr++];
    }
    if (o.policy == Policy::random) return ready[below(nready)];
    uint64_t best = 0;
    uint32_t ties = 0;
    Lane* b = nullptr;
    for (uint32_t i = 0; i < nready; i++) {
      uint64_t p = unit_prio(ready[i]);
      if (!b || p > best) {
        best = p;
        b = ready[i];
        ties = 1;
      } else if (p == best && below(++ties) == 0)
        b = ready[i];
    }
    return b;
  }
  void fail(Status st, Lane* who, const char* fmt, const char* a = "", long x = 0, long y = 0) {
    if (status != Status::ok) return;
    status = st;
    culprit = who;
    snprintf(why, sizeof why, fmt, a, x, y);
  }
  // ---- weak mode
  uint32_t npend = 0;
  void put(PendBuf& b, Pending p) {
    if (b.n == b.cap) {
      b.cap = b.cap ? 2 * b.cap : 8;
      b.e = (Pending*)realloc(b.e, b.cap * sizeof(Pending));
    }
    b.e[b.n++] = p;
  }
  void emit(PendBuf& b, unsigned i) {  // the i-th becomes visible; an older store to the same word goes first
    for (unsigned k = 0; k < i; k++)
      if (b.e[k].addr == b.e[i].addr) {
        i = k;
        break;
      }
    Pending p = b.e[i];
    for (unsigned k = i + 1; k < b.n; k++) b.e[k - 1] = b.e[k];
    --b.n;
    --npend;
    if (p.size == 4)
      __atomic_store_n((uint32_t*)p.addr, (uint32_t)p.v, __ATOMIC_RELAXED);
    else
      __atomic_store_n((uint64_t*)p.addr, p.v, __ATOMIC_RELAXED);
    wake(p.addr);
  }
  void drain(PendBuf& b) {
    while (b.n) emit(b, (unsigned)below(b.n));
  }
  void drain_all() {
    for (Grid* g = grids; g; g = g->next)
      for (unsigned k = 0; k < g->nblocks; k++) {
        drain(g->blocks[k].pend);
        for (unsigned t = 0; t < g->blocks[k].n; t++) drain(g->blocks[k].lanes[t].pend);
      }
  }
  void wake(const void* addr) {
    uintptr_t ln = (uintptr_t)addr >> 7;
    for (uint32_t i = 0; i < nparked;) {
      Lane* l = parked[i];
      if (watches(l, ln) || l->abort_flag == addr)
        unpark(l);
      else
        ++i;
    }
  }

  Fiber& pick() {  // whom to run next; main when finished or failed
    if (status != Status::ok || live == 0 || event) return main;
    if (nready == 0 && npend) drain_all();
    if (nready == 0) {
      if (!poll_parked()) {
        if (o.incremental) {
          stuck = true;
          return main;
        }
        if (!o.external) {
          fail(Status::deadlock, nullptr, "no lane can run: every live lane waits and no watched word changed");
          return main;
        }
        struct timespec t0, t;
        clock_gettime(CLOCK_MONOTONIC, &t0);
        for (unsigned k = 0; !poll_parked(); ++k) {
          if (k < 16) {
            for (int i = 0; i < 32; i++) __builtin_ia32_pause();
          } else if (k < 2000)
            sched_yield();
          else {
            struct timespec d {
              0, 50000
            };
            nanosleep(&d, nullptr);
            clock_gettime(CLOCK_MONOTONIC, &t);
            if ((k & 31) == 0) {
              while (nparked) unpark(parked[0]);
              break;
            }  // let them look at the clock
            if ((double)(t.tv_sec - t0.tv_sec) + 1e-9 * (double)(t.tv_nsec - t0.tv_nsec) > o.watchdog_s) {
              fail(Status::timeout, nullptr, "no progress within the watchdog time");
              return main;
            }
          }
        }
      }
    } else if (!o.explore && nparked && (++rr_poll & 63) == 0)
      poll_parked();
    Lane* l = choose();
    drop_ready(l);
    l->st = St::Running;
    return l->fiber;
  }
  unsigned rr_poll = 0;

  void switch_from(Fiber& from, Fiber& to, bool dying = false);
  void resched(Lane* l, bool dying = false) {
    Fiber& f = pick();
    if (&f != &l->fiber) switch_from(l->fiber, f, dying);
  }
  void finish_barrier(Block* b, Bar& r);
  [[noreturn]] void abandon(Lane* l) {
    switch_from(l->fiber, main, true);
    __builtin_trap();
  }
};

static thread_local Machine* t_sched = nullptr;
static thread_local Fiber* t_cur = nullptr;

void Machine::switch_from(Fiber& from, Fiber& to, bool dying) {
  ++switches;
  t_cur = &to;
  t_lane = &to == &main ? nullptr : (LaneHead*)(Lane*)((char*)&to - __builtin_offsetof(Lane, fiber));
  fiber_switch(from, to, dying);
}

static inline Lane* me() { return static_cast<Lane*>(t_lane); }

static void hb_release(const void* k) {
#ifdef RONDO_SIMT_TSAN
  __tsan_release(const_cast<void*>(k));
#else
  (void)k;
#endif
}
static void hb_acquire(const void* k) {
#ifdef RONDO_SIMT_TSAN
  __tsan_acquire(const_cast<void*>(k));
#else
  (void)k;
#endif
}

uint64_t random_bits() { return t_sched->rnd(); }
uint64_t timer_ns() {
  if (t_sched->o.explore) return t_sched->steps;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// ------------------------------------------------------------------ scheduling points
void scheduling_point() {
  Machine* s = t_sched;
  Lane* l = me();
  ++s->steps;
  if (s->status != Status::ok) s->abandon(l);
  if (s->o.max_steps && s->steps > s->o.max_steps) {
    s->fail(Status::step_limit, l, "step limit");
    s->abandon(l);
  }
  if (s->npend) {
    if (l->pend.n && s->below(8) == 0) s->emit(l->pend, (unsigned)s->below(l->pend.n));
    if (l->blk->pend.n && s->below(8) == 0) s->emit(l->blk->pend, (unsigned)s->below(l->blk->pend.n));
  }
  if (s->o.pause_per_10000 && s->below(10000) < s->o.pause_per_10000) {
    s->event = true;
    s->push_ready(l);
    s->resched(l);
    return;
  }
  if (s->pct()) {
    if (s->changes_left && s->steps >= s->next_change) {
      s->set_unit_prio(l, s->changes_left--);  // below every initial priority
      s->next_change = s->steps + 1 + s->below(2 * s->o.pct_steps / (s->o.pct_changes + 1));
    }
    if (!s->nready) return;
  } else if (s->o.policy == Policy::random) {
    if (!s->nready || s->below(100) >= s->o.switch_percent) return;
  } else
    return;
  s->push_ready(l);
  s->resched(l);
}

void stored(const void* addr) {
  if (t_sched->nparked) t_sched->wake(addr);
}

void weak_store(void* addr, size_t size, uint64_t v) {
  Machine* s = t_sched;
  Lane* l = me();
  s->put(l->pend, {addr, (uint32_t)size, v});
  ++s->npend;
  while (l->pend.n > 8) s->emit(l->pend, (unsigned)s->below(l->pend.n));
}
bool weak_forward(const void* addr, size_t size, uint64_t* v) {
  Lane* l = me();
  for (PendBuf* b : {&l->pend, &l->blk->pend})
    for (unsigned i = b->n; i-- > 0;)
      if (b->e[i].addr == addr && b->e[i].size == size) {
        *v = b->e[i].v;
        return true;
      }
  return false;
}
void weak_release() {
  Machine* s = t_sched;
  Lane* l = me();
  s->drain(l->blk->pend);
  s->drain(l->pend);
}
static void to_block(Machine* s, Lane* l) {  // barrier: visible to the block, not yet to the world
  for (unsigned i = 0; i < l->pend.n; i++) s->put(l->blk->pend, l->pend.e[i]);
  l->pend.n = 0;
}

void park(const void* addr, const void* seen, size_t size, const uint32_t* abort_flag) {
  Machine* s = t_sched;
  Lane* l = me();
  l->w.word = addr;
  l->w.bytes = (uint32_t)size;
  for (uint32_t i = 0; i < size; i++) l->w.seen[i] = ((const unsigned char*)seen)[i];
  l->abort_flag = abort_flag;
  if (++s->steps, s->o.max_steps && s->steps > s->o.max_steps) s->fail(Status::step_limit, l, "step limit");
  s->push_parked(l);
  s->resched(l);
  if (s->status != Status::ok) s->abandon(l);
}
void park_any(const Watch* watches, unsigned count, const uint32_t* abort_flag) {
  Lane* l = me();
  l->also = watches + 1;
  l->nalso = count - 1;
  park(watches->word, watches->seen, watches->bytes, abort_flag);
  l->nalso = 0;
}

// ------------------------------------------------------------------ barriers
void Machine::finish_barrier(Block* b, Bar& r) {
  unsigned id = (unsigned)(&r - b->bar);
  r.arrived = 0;
  r.gen++;
  r.file = nullptr;
  for (unsigned i = 0; i < b->n; i++) {
    Lane* l = &b->lanes[i];
    if (l->st == St::Barrier && l->bar_id == id) push_ready(l);
  }
}

bool block_barrier(unsigned id, unsigned n, bool pred, Place place) {
  const char* file = place.file;
  const unsigned line = place.line;
  Machine* s = t_sched;
  Lane* l = me();
  Block* b = l->blk;
  Bar& r = b->bar[id & 15];
  if (s->o.explore) scheduling_point();
  if (n && (n % 32 || n > b->n)) {
    s->fail(Status::misuse, l, "%s named barrier: %ld threads of %ld", "", (long)n, (long)b->n);
    s->abandon(l);
  }
  if (r.arrived == 0) {
    r.file = file;
    r.line = line;
    r.expected = n;
    r.orv[r.gen & 1] = false;
  } else if (r.line != line || r.expected != n || strcmp(r.file, file)) {
    l->file = file;
    l->line = line;
    s->fail(Status::misuse, l, "divergent barrier: others wait at %s:%ld, this lane at line %ld", r.file, (long)r.line,
            (long)line);
    s->abandon(l);
  }
  const char* key = &r.key[r.gen & 1];
  const bool* orv = &r.orv[r.gen & 1];
  r.orv[r.gen & 1] |= pred;
  if (l->pend.n) to_block(s, l);
  hb_release(key);
  l->file = file;
  l->line = line;
  l->bar_id = id & 15;
  unsigned want = n ? n : b->alive;
  if (++r.arrived < want) {
    l->st = St::Barrier;
    s->resched(l);
    if (s->status != Status::ok) s->abandon(l);
  } else {
    l->st = St::Running;
    s->finish_barrier(b, r);
  }
  hb_acquire(key);
  bool res = *orv;
  if (s->o.explore) scheduling_point();
  return res;
}

// ------------------------------------------------------------------ warp collectives
static inline uint64_t rd8(const void* p) { return __atomic_load_n((const uint64_t*)p, __ATOMIC_RELAXED); }

uint64_t warp_meet(WarpOperation k, uint64_t v, unsigned arg, Place place) {
  uint32_t mask = ~0u;
  const char* file = place.file;
  const unsigned line = place.line;
  Machine* s = t_sched;
  Lane* l = me();
  Warp* w = l->warp;
  if (s->o.explore) scheduling_point();
  if (w->n < 32) mask &= (1u << w->n) - 1;
  if (!(mask >> l->lid & 1)) {
    s->fail(Status::misuse, l, "%s warp op: calling lane %ld is not in the mask", "", (long)l->lid);
    s->abandon(l);
  }
  unsigned leader = (unsigned)__builtin_ctz(mask);
  const char* key = &w->key[leader][w->gen[leader] & 1];
  if (k == WarpOperation::sync) {
    hb_release(key);
    if (l->pend.n) to_block(s, l);
  }
  l->coll = k;
  l->cmask = mask;
  l->cval = v;
  l->carg = arg;
  l->carrived = true;
  l->file = file;
  l->line = line;
  bool all = true;
  for (unsigned i = 0; i < w->n; i++)
    if (mask >> i & 1) {
      Lane* o = w->lanes[i];
      if (o->st == St::Done) {
        s->fail(Status::misuse, l, "warp op at %s:%ld waits for lane %ld, which has returned", file, (long)line,
                (long)i);
        s->abandon(l);
      }
      if (!o->carrived) {
        all = false;
        continue;
      }
      if (o->cmask != mask || o->coll != k || o->line != line) {
        s->fail(Status::misuse, l, "mismatched warp op at %s:%ld against line %ld", file, (long)line, (long)o->line);
        s->abandon(l);
      }
    }
  if (!all) {
    l->st = St::Warp;
    s->resched(l);
    if (s->status != Status::ok) s->abandon(l);
  } else {
    w->gen[leader]++;
    uint32_t bal = 0;
    if (k == WarpOperation::ballot)
      for (unsigned i = 0; i < w->n; i++)
        if ((mask >> i & 1) && w->lanes[i]->cval) bal |= 1u << i;
    for (unsigned i = 0; i < w->n; i++)
      if (mask >> i & 1) {
        Lane* o = w->lanes[i];
        unsigned src = i;
        switch (k) {
          case WarpOperation::shuffle:
            src = o->carg & 31;
            break;
          default:
            break;
        }
        if (src >= w->n || !(mask >> src & 1)) src = i;
        o->cres = k == WarpOperation::ballot ? bal : w->lanes[src]->cval;
      }
    for (unsigned i = 0; i < w->n; i++)
      if (mask >> i & 1) {
        Lane* o = w->lanes[i];
        o->carrived = false;
        if (o != l) s->push_ready(o);
      }
  }
  if (k == WarpOperation::sync) hb_acquire(key);
  uint64_t r = l->cres;
  if (s->o.explore) scheduling_point();
  return r;
}

// ------------------------------------------------------------------ shared memory, trap
// The arena is allocated by the launching context: under TSan an allocation made here would count as a
// write by this lane.
void* shared_variable(const void* key, size_t size, size_t align) {
  Block* b = me()->blk;
  for (unsigned i = 0; i < b->nsv; i++)
    if (b->sv[i].key == key) return b->smem + b->sv[i].off;
  uint32_t off = (uint32_t)((b->used + align - 1) & ~(align - 1));
  if (b->nsv == 32 || off + size > t_sched->o.shared_bytes) trap("too much __shared__ memory");
  b->sv[b->nsv++] = {key, off, (uint32_t)size};
  b->used = (uint32_t)(off + size + 16);  // 16: gap, poisoned under ASan
#ifdef RONDO_SIMT_ASAN
  __asan_unpoison_memory_region(b->smem + off, size);
#endif
  return b->smem + off;
}
void trap(const char* why) {
  Lane* l = me();
  t_sched->fail(Status::misuse, l, "trap: %s", why);
  t_sched->abandon(l);
}

// ------------------------------------------------------------------ Sched
static void lane_entry() {
  Lane* l = (Lane*)((char*)t_cur - __builtin_offsetof(Lane, fiber));
  after_switch(l->fiber);
  Machine* s = t_sched;
  Grid* g = l->blk->grid;
  hb_acquire(&g->key0);
  g->fn(g->arg);
  hb_release(&g->key1);
  l->st = St::Done;
  --s->live;
  if (l->pend.n) to_block(s, l);
  if (--g->alive == 0) {  // end of kernel: everything is visible
    for (unsigned k = 0; k < g->nblocks; k++) s->drain(g->blocks[k].pend);
    if (s->o.incremental) s->event = true;
  }
  Block* b = l->blk;
  --b->alive;
  for (Bar& r : b->bar)
    if (r.arrived && !r.expected && r.arrived >= b->alive) s->finish_barrier(b, r);
  s->resched(l, true);
  __builtin_trap();
}

// stacks and TSan fibers are pooled per OS thread
struct Reuse {
  char* stack;
  void* tsan;
};
struct Pool {
  Reuse* v = nullptr;
  unsigned n = 0, cap = 0;
  size_t size = 0;
  void clear() {
    for (unsigned i = 0; i < n; i++) {
      Fiber::unmap_stack(v[i].stack, size);
#ifdef RONDO_SIMT_TSAN
      if (v[i].tsan) __tsan_destroy_fiber(v[i].tsan);
#endif
    }
    n = 0;
  }
  ~Pool() {
    clear();
    free(v);
  }
};
static thread_local Pool t_pool;
static void acquire_fiber(Fiber& f, size_t sz) {
  Reuse r{nullptr, nullptr};
  if (t_pool.size == sz && t_pool.n)
    r = t_pool.v[--t_pool.n];
  else
    r.stack = Fiber::map_stack(sz);
  if (!r.stack) {
    fprintf(stderr, "simt: no memory for a lane's stack (vm.max_map_count?)\n");
    abort();
  }
#ifdef RONDO_SIMT_TSAN
  if (!r.tsan) r.tsan = __tsan_create_fiber(0);
#endif
  f.size = sz;
  f.stack = r.stack;
  f.tsan = r.tsan;
}
static void release_fiber(Fiber& f, bool finished) {
  if (t_pool.size != f.size) {
    t_pool.clear();
    t_pool.size = f.size;
  }
  if (t_pool.n == t_pool.cap) {
    t_pool.cap = t_pool.cap ? t_pool.cap * 2 : 64;
    t_pool.v = (Reuse*)realloc(t_pool.v, t_pool.cap * sizeof(Reuse));
  }
#ifdef RONDO_SIMT_TSAN
  if (!finished) {
    __tsan_destroy_fiber(f.tsan);
    f.tsan = nullptr;
  }  // its shadow call stack was not unwound
#else
  (void)finished;
#endif
  t_pool.v[t_pool.n++] = {f.stack, f.tsan};
}

Scheduler::Scheduler(const Options& o) : machine_(new Machine) {
  machine_->o = o;
  uint64_t z = o.seed * 0x9E3779B97F4A7C15ull + 0x1234567;
  for (uint64_t& x : machine_->s) {
    z += 0x9E3779B97F4A7C15ull;
    uint64_t t = z;
    t = (t ^ (t >> 30)) * 0xBF58476D1CE4E5B9ull;
    t = (t ^ (t >> 27)) * 0x94D049BB133111EBull;
    x = t ^ (t >> 31);
  }
#ifdef RONDO_SIMT_ASAN
  machine_->o.stack_bytes *= 2;
#endif
}

int Scheduler::add_grid(const GridSpec& spec) {
  const char* name = spec.name;
  const int rank = spec.rank;
  const unsigned bt = spec.threads;
  const size_t shmem = 0;
  auto fn = spec.body;
  auto arg = spec.argument;
  Machine* s = machine_.get();
  Grid* g = (Grid*)calloc(1, sizeof(Grid));
  g->name = name;
  g->rank = rank;
  g->fn = fn;
  g->arg = arg;
  g->shmem = shmem;
  g->next = s->grids;
  s->grids = g;
  g->nblocks = spec.blocks;
  g->id = s->ngrids++;
  g->alive = g->nblocks * bt;
  g->blocks = (Block*)calloc(g->nblocks, sizeof(Block));
  s->cap += g->nblocks * bt;
  s->ready = (Lane**)realloc(s->ready, s->cap * sizeof(Lane*));
  s->parked = (Lane**)realloc(s->parked, s->cap * sizeof(Lane*));
  for (unsigned b = 0; b < g->nblocks; b++) {
    Block* blk = &g->blocks[b];
    blk->grid = g;
    blk->n = blk->alive = bt;
    unsigned nw = (bt + 31) / 32;
    blk->warps = (Warp*)calloc(nw, sizeof(Warp));
    void* lm = aligned_alloc(64, (sizeof(Lane) * bt + 63) & ~size_t(63));
    memset(lm, 0, sizeof(Lane) * bt);
    blk->lanes = (Lane*)lm;
    blk->smem = (char*)aligned_alloc(128, s->o.shared_bytes);
    memset(blk->smem, 0xA5, s->o.shared_bytes);  // CUDA: undefined
#ifdef RONDO_SIMT_ASAN
    __asan_poison_memory_region(blk->smem, s->o.shared_bytes);
#endif
    if (shmem) {
      blk->dyn = aligned_alloc(128, (shmem + 127) & ~size_t(127));
      memset(blk->dyn, 0xA5, shmem);
    }
    for (unsigned t = 0; t < bt; t++) {
      Lane* l = new (&blk->lanes[t]) Lane;
      l->thread = t;
      l->block = b;
      l->block_threads = bt;
      l->grid_blocks = spec.blocks;
      l->rank = rank;
      l->explore = s->o.explore;
      l->weak = s->o.explore && s->o.weak;
      l->blk = blk;
      l->warp = &blk->warps[t / 32];
      l->lid = t & 31;
      l->warp->lanes[l->lid] = l;
      l->warp->n++;
      l->prio = (s->rnd() >> 8) + 1000;
      acquire_fiber(l->fiber, s->o.stack_bytes);
      fiber_init(l->fiber, lane_entry);
      s->push_ready(l);
      s->live++;
      s->total++;
    }
  }
  hb_release(&g->key0);
  return g->id;
}

bool Scheduler::is_done(int id) const {
  for (Grid* g = machine_->grids; g; g = g->next)
    if (g->id == id) {
      if (g->alive) return false;
      hb_acquire(&g->key1);
      return true;
    }
  return false;
}

Status Scheduler::run() {
  Machine* s = machine_.get();
  if (!s->live) return s->status;
  if (!s->next_change)
    s->changes_left = s->o.pct_changes, s->next_change = 1 + s->below(2 * s->o.pct_steps / (s->o.pct_changes + 1));
  Machine* outer = t_sched;
  t_sched = s;
#ifdef RONDO_SIMT_TSAN
  s->main.tsan = __tsan_get_current_fiber();
#endif
  Fiber& f = s->pick();
  if (&f != &s->main) s->switch_from(s->main, f);
  t_sched = outer;
  t_lane = nullptr;
  if (s->status == Status::ok && s->live) {
    bool st = s->stuck;
    s->event = s->stuck = false;
    return st ? Status::deadlock : Status::paused;
  }
#ifdef RONDO_SIMT_TSAN
  if (s->status != Status::ok)  // abandoned lanes: order their accesses before the caller's clean-up
    for (Grid* g = s->grids; g; g = g->next)
      for (unsigned b = 0; b < g->nblocks; b++)
        for (unsigned t = 0; t < g->blocks[b].n; t++) {
          __tsan_switch_to_fiber(g->blocks[b].lanes[t].fiber.tsan, 1);
          hb_release(&g->key1);
          __tsan_switch_to_fiber(s->main.tsan, 1);
        }
#endif
  for (Grid* g = s->grids; g; g = g->next) hb_acquire(&g->key1);
  return s->status;
}

Scheduler::~Scheduler() {
  Machine* s = machine_.get();
  for (Grid* g = s->grids; g;) {
    for (unsigned b = 0; b < g->nblocks; b++) {
      Block* k = &g->blocks[b];
      for (unsigned t = 0; t < k->n; t++) {
        free(k->lanes[t].pend.e);
        release_fiber(k->lanes[t].fiber, k->lanes[t].st == St::Done);
      }
      free(k->pend.e);
#ifdef RONDO_SIMT_ASAN
      __asan_unpoison_memory_region(k->smem, s->o.shared_bytes);
#endif
      free(k->smem);
      free(k->dyn);
      free(k->lanes);
      free(k->warps);
    }
    Grid* n = g->next;
    free(g->blocks);
    free(g);
    g = n;
  }
  free(s->ready);
  free(s->parked);
}

uint64_t Scheduler::steps() const { return machine_->steps; }
uint64_t Scheduler::switches() const { return machine_->switches; }
const char* name_of(Status s) {
  static const char* n[] = {"ok", "deadlock", "timeout", "step-limit", "misuse", "yield"};
  return n[(int)s];
}
const char* name_of(Policy s) {
  static const char* n[] = {"rr", "random", "pct-lane", "pct-warp", "pct-block", "pct-rank"};
  return n[(int)s];
}

std::string Scheduler::report() const {
  Machine* s = machine_.get();
  char b[512];
  std::string r;
  snprintf(b, sizeof b, "simt: %s: %s [policy=%s seed=%llu step=%llu]\n", name_of(s->status), s->why,
           name_of(s->o.policy), (unsigned long long)s->o.seed, (unsigned long long)s->steps);
  r += b;
  if (s->culprit) {
    Lane* l = s->culprit;
    snprintf(b, sizeof b, "  at rank %d block %u thread %u %s:%u\n", l->rank, l->block, l->thread,
             l->file ? l->file : "?", l->line);
    r += b;
  }
  for (Grid* g = s->grids; g; g = g->next)
    for (unsigned k = 0; k < g->nblocks; k++) {
      Block* blk = &g->blocks[k];
      for (unsigned t = 0; t < blk->n;) {  // fold runs of lanes in the same place
        Lane* l = &blk->lanes[t];
        unsigned e = t + 1;
        auto same = [](Lane* a, Lane* c) {
          return a->st == c->st &&
                 (a->st == St::Parked ? a->w.word == c->w.word
                                      : a->st == St::Done || (a->line == c->line && a->file == c->file));
        };
        while (e < blk->n && same(l, &blk->lanes[e])) ++e;
        if (l->st == St::Parked) {
          unsigned long long seen = 0, now = 0;
          memcpy(&seen, l->w.seen, l->w.bytes < 8 ? l->w.bytes : 8);
          memcpy(&now, l->w.word, l->w.bytes < 8 ? l->w.bytes : 8);
          snprintf(b, sizeof b, "  rank %d %s block %u threads %u-%u: parked on %p seen=%llu now=%llu\n", g->rank,
                   g->name, k, t, e - 1, l->w.word, seen, now);
        } else
          snprintf(b, sizeof b, "  rank %d %s block %u threads %u-%u: %s %s:%u\n", g->rank, g->name, k, t, e - 1,
                   st_name[(int)l->st],
                   l->st == St::Done ? ""
                   : l->file         ? l->file
                                     : "?",
                   l->st == St::Done ? 0 : l->line);
        r += b;
        t = e;
      }
    }
  return r;
}

}  // namespace rondo::simt
