-- adjust: corrects manually what an org was charged, or resolves a charge on its reconciliation
-- list. Idempotent on the id, for as long as `adjusted` remembers it.
-- Libraries: time, shapes, shape_of, whole, roll.
--
-- KEYS  1 ledger (STREAM)  2 audit (STREAM)  3 adjusted (HASH id -> "<at>|<what>")
--       4 the same for the previous period  5 reconcile (LIST)
--       6 7 8 roll-ups of three UTC days in a row  9 10 11 of their hours
--       12 13 14 sums by label of the days  15.. one state key per limit, then what the call's job and batch
--       cost
-- ARGV  1 now  2 id  3 what is done, to recognize a repetition
--       4 amount, may be negative  5 kind of ledger entry, empty: none
--       6 calls  7 estimated  8 adjusted: what to add to these sums  9 day of KEYS 6
--       10 roll-up field  11-19 tokens and costs by class, as in roll  20 maximum fields of a day
--       21 ledger entry: JSON without its closing brace  22 ledger length
--       23 lifetime of KEYS 1 in ms  24 lifetime of KEYS 6 to 8 in ms
--       25 audit entry: JSON without its closing brace
--       26 audit length  27 lifetime of KEYS 2 in ms  28 lifetime of KEYS 3 in ms
--       29 the item of KEYS 5 that is resolved, empty: none
--       30 fields of the sums by label, each with a comma behind it
--       31 the most that may be given back, empty: anything  32 the last id of KEYS 2 when that was
--       computed, empty: none
--       33 number of its sums: what its job and batch cost  34.. their lifetimes in ms
--       then per limit: kind, p1, p2
-- Reply "<verdict>,<now>,<at>"; verdict: adjusted | replayed | conflict (the id was used for
--       something else) | gone (the item is not on the list) | below (it would give back more than
--       it may) | raced (another correction was made meanwhile) | skew

local ledger, audit, adjusted, adjusted_before, reconcile = unpack(KEYS, 1, 5)
local days, hours, by_label = { unpack(KEYS, 6, 8) }, { unpack(KEYS, 9, 11) }, { unpack(KEYS, 12, 14) }
local given, id, what, amount, entry_kind, calls, estimated, adjustment, first_day, field = unpack(ARGV, 1, 10)
local USAGE_AT = 11 -- start of tokens and costs in ARGV
local most_fields, entry, ledger_length, ledger_life, rollup_life = unpack(ARGV, 20, 24)
local audit_entry, audit_length, audit_life, adjusted_life, item, labels, most_back, last, sums = unpack(ARGV, 25, 33)
local LIMITS_AT = 34 + sums -- start of the limits in ARGV
local limits_end = #KEYS - sums -- of the limits in KEYS
amount = tonumber(amount)
local now = now_us(given)

local function reply(verdict, at) return fmt('%s,%d,%d', verdict, now, at or now) end

local done = call('HGET', adjusted, id) or call('HGET', adjusted_before, id)
if done then
  local at, was = done:match('^(%d+)|(.*)$')
  return reply(was == what and 'replayed' or 'conflict', tonumber(at))
end

if most_back ~= '' then
  local newest = call('XREVRANGE', audit, '+', '-', 'COUNT', 1)[1]
  if (newest and newest[1] or '') ~= last then return reply('raced') end
  if -amount > tonumber(most_back) then return reply('below') end
end

local day = floor(now / 86400000000) - first_day
if day < 0 or day > 2 then return reply('skew') end
local limits = {}
for i = 1, limits_end - 14 do
  local key = KEYS[14 + i]
  local kind, p1, p2 = unpack(ARGV, LIMITS_AT + 3 * i - 3, LIMITS_AT + 3 * i - 1)
  local shape = whole(kind)
  local state = shape.read(key, p1, p2, now)
  if not state then return reply('skew') end
  limits[i] = { key = key, shape = shape, kind = kind, p1 = p1, p2 = p2, state = state }
end

-- A credit is taken from charges, never from open holds, and in windows from what leaves them
-- first, so that it lasts no longer than the charge would have.
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

if item ~= '' and call('LREM', reconcile, '1', item) == 0 then return reply('gone') end
call('HSET', adjusted, id, num(now) .. '|' .. what) -- refused when memory is full
call('PEXPIRE', adjusted, adjusted_life)
call('XADD', audit, 'MAXLEN', '~', audit_length, '*', 'e', audit_entry .. fmt(',"at_us":%d}', now))
call('PEXPIRE', audit, audit_life)
if entry_kind ~= '' then
  call('XADD', ledger, 'MAXLEN', '~', ledger_length, '*', 'e', entry ..
    fmt(',"kind":"%s","at_us":%d,"cost_nano":%d,"total_nano":%d,"overrun_nano":0}', entry_kind, now, amount, amount))
  call('PEXPIRE', ledger, ledger_life)
  for i = 1, sums + 0 do
    local sum, life = KEYS[limits_end + i], ARGV[33 + i]
    call('INCRBY', sum, fmt('%d', amount))
    call('PEXPIRE', sum, life)
  end
  roll(days[1 + day], hours[1 + day], now, field, most_fields, rollup_life, USAGE_AT,
    amount, calls, estimated, 0, adjustment)
  roll_labels(by_label[1 + day], labels, most_fields, rollup_life, USAGE_AT, amount, calls, estimated, 0, adjustment)
end
for _, limit in ipairs(limits) do
  local shape, state = limit.shape, limit.state
  if amount >= 0 then
    shape.charge(state, amount, id, 'a', false)
  else
    give[limit.kind](shape, state, limit.key, limit.p1, -amount)
  end
  shape.write(state, limit.key, limit.p1, limit.p2)
end
return reply('adjusted')
