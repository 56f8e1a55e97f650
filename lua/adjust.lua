-- adjust: corrects by hand what an org was charged, or resolves a charge of its
-- reconciliation list. Idempotent on the id, for as long as KEYS 3 and 4 remember.
-- Libraries: time, shapes, roll.
--
-- KEYS  1 ledger (STREAM)  2 audit (STREAM)  3 adjusted (HASH id -> "<at>|<what>")
--       4 the same of the period before  5 reconcile (LIST)
--       6 7 8 roll-ups of three UTC days in a row  9 10 11 of their hours
--       12.. one state key per limit
-- ARGV  1 now  2 id  3 what is done, to tell a repetition from another one
--       4 amount, may be negative  5 kind of ledger entry, empty: none
--       6 calls  7 estimated  8 adjusted: what to add to these sums  9 day of KEYS 6
--       10-24 as in ending  25 audit entry: JSON without its closing brace
--       26 audit length  27 lifetime of KEYS 2 in ms  28 lifetime of KEYS 3 in ms
--       29 the item of KEYS 5 that is resolved, empty: none
--       30.. per limit: kind, p1, p2
-- Reply "<verdict>,<now>,<at>"; verdict: adjusted | replayed | conflict (the id did
--       something else) | gone (the item is not on the list) | skew

local now = now_us(ARGV[1])
local id, amount = ARGV[2], tonumber(ARGV[4])

local function reply(verdict, at) return fmt('%s,%d,%d', verdict, now, at or now) end

local done = call('HGET', KEYS[3], id) or call('HGET', KEYS[4], id)
if done then
  local at, what = done:match('^(%d+)|(.*)$')
  return reply(what == ARGV[3] and 'replayed' or 'conflict', tonumber(at))
end

local day = floor(now / 86400000000) - ARGV[9]
if day < 0 or day > 2 then return reply('skew') end
local shapes, states = {}, {}
for i = 12, #KEYS do
  local a = i * 3 - 6
  shapes[i] = whole(ARGV[a])
  states[i] = shapes[i].read(KEYS[i], ARGV[a + 1], ARGV[a + 2], now)
  if not states[i] then return reply('skew') end
end

-- What is given back is taken from what is charged, never from open holds, and in
-- windows from what leaves them first: it lasts no longer than the charge would have.
local give = {}

function give.w(s, st, key, slot, n)
  s.look(st, key, slot, 0) -- loads all slots
  for i = st.cur - 60, st.cur do
    local v, h = st.cv, st.ch
    if i < st.cur then v, h = st.v and st.v[num(i % 61)] or 0, st.h and st.h[num(i % 61)] or 0 end
    local back = min(n, max(v - h, 0))
    if back > 0 then n = n - s.change(st, key, num(i), back, 0, false) end
  end
end

function give.x(_, st, key, _, n)
  local all = st.cut and call('ZRANGEBYSCORE', key, '(' .. num(st.cut), '+inf', 'WITHSCORES') or {}
  for i = 1, #all, 2 do
    local v, of = all[i]:match('^s:(%d+)(:.*)$')
    local back = min(n, tonumber(v or 0))
    if back > 0 then
      call('ZREM', key, all[i])
      if back < tonumber(v) then call('ZADD', key, all[i + 1], 's:' .. num(v - back) .. of) end
      n, st.used = n - back, st.used - back
    end
  end
end

function give.b(_, st, _, _, n)
  st.used = st.used - max(min(n, st.used - st.held), 0)
  if st.used == 0 then st.f = 0 end
end

function give.c(_, st, _, _, n)
  st.used = st.used - max(min(n, st.used - st.held), 0)
end

if ARGV[29] ~= '' and call('LREM', KEYS[5], '1', ARGV[29]) == 0 then return reply('gone') end
call('HSET', KEYS[3], id, num(now) .. '|' .. ARGV[3]) -- refused when memory is full
call('PEXPIRE', KEYS[3], ARGV[28])
call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[26], '*', 'e', ARGV[25] .. fmt(',"at_us":%d}', now))
call('PEXPIRE', KEYS[2], ARGV[27])
if ARGV[5] ~= '' then
  call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[22], '*', 'e', ARGV[21] ..
    fmt(',"kind":"%s","at_us":%d,"cost_nano":%d,"total_nano":%d,"overrun_nano":0}', ARGV[5], now, amount, amount))
  call('PEXPIRE', KEYS[1], ARGV[23])
  roll(KEYS[6 + day], KEYS[9 + day], now, ARGV[10], ARGV[20], ARGV[24], 11, amount, ARGV[6], ARGV[7], 0, ARGV[8])
end
for i = 12, #KEYS do
  local a, s, st = i * 3 - 6, shapes[i], states[i]
  if amount >= 0 then
    s.charge(st, amount, id, 'a', false)
  else
    give[ARGV[a]](s, st, KEYS[i], ARGV[a + 1], -amount)
  end
  s.write(st, KEYS[i], ARGV[a + 1], ARGV[a + 2])
end
return reply('adjusted')
