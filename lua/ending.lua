-- Library: how a hold ends (needs time, shapes, roll). settle, void and expire take the
-- same KEYS and ARGV:
--
-- KEYS  1 leases  2 holds  3 done (HASH id -> tombstone)  4 ledger (STREAM)
--       5 reconcile (LIST)  6 7 8 roll-ups of three UTC days in a row (HASH)
--       9 10 11 roll-ups of their hours (HASH)  12.. one state key per limit, in the order of the hold
-- ARGV  1 now (empty: Redis TIME)  2 id  3 cost  4 max cost as the holder knows it
--       5 estimated 0|1  6 since: us of the admission  7 horizon us
--       8 lifetime of KEYS 3 in ms  9 day number of KEYS 6  10 roll-up field
--       11-19 tokens and costs by class, as in roll  20 most fields of a day
--       21 ledger entry: JSON without its closing brace; empty: no books are kept  22 ledger length
--       23 lifetime of KEYS 4, 5 in ms  24 lifetime of KEYS 6-8 in ms
--       25.. per limit: kind, want, p1, p2
-- Tombstones: "S,<charged>,<overrun>,<at>" settled, "V" voided,
--       "X,<charged>,<max>,<at>|<limits>|<meta>" expired, open to a late settle.
-- Reply "<verdict>,<now>,<charged>,<overrun>,<late 0|1>,<at>", `at` the time of the
--       settle that is replayed; verdict keys: the hold has other limits than those
--       declared, nothing was done

local RECONCILE_MAX = 100000

local function reply(verdict, now, charged, overrun, late, at)
  return fmt('%s,%d,%d,%d,%d,%d', verdict, now, tonumber(charged or 0), tonumber(overrun or 0), late and 1 or 0,
    tonumber(at or now))
end

-- read_limits returns shapes and states by KEYS index; nil: Go's days or calendar
-- do not reach now.
local function read_limits(now)
  local day = floor(now / 86400000000) - ARGV[9]
  if day < 0 or day > 2 then return nil end
  local shapes, states = {}, {}
  for i = 12, #KEYS do
    local a = i * 4 - 23
    shapes[i] = whole(ARGV[a])
    states[i] = shapes[i].read(KEYS[i], ARGV[a + 2], ARGV[a + 3], now)
    if not states[i] then return nil end
  end
  return shapes, states
end

-- declared reports whether KEYS has the limits of a hold's text.
local function declared(text)
  local _, more = text:gsub(';', '')
  return (text == '' and 0 or more + 1) == #KEYS - 11
end

-- regrade moves one limit of a hold from what it has charged to `want`: too much
-- goes back, newest part first; too little is charged now, over the limit if need
-- be. It returns the limit's text with what stays charged at each place.
local function regrade(s, st, key, text, want, open, id)
  local had = tonumber(text:match('^%d+') or 0)
  local places, amounts = {}, {}
  for place, n in text:gmatch('([^ ]+):([^ ]+)') do
    places[#places + 1], amounts[#amounts + 1] = place, tonumber(n)
  end
  local back = max(had - want, 0)
  for k = #places, 1, -1 do
    local from = amounts[k]
    local to = max(from - back, 0)
    back = back - (from - to)
    if open or to < from then
      amounts[k] = from - s.change(st, key, places[k], from, to, open, id, k)
    end
  end
  if want > had then s.charge(st, want - had, id, 'o', false) end
  for k = 1, #places do places[k] = places[k] .. ':' .. num(amounts[k]) end
  return num(want) .. ' ' .. table.concat(places, ' ')
end

local function as_given(want) return tonumber(want) end

-- regrade_all regrades every limit, writes the states and returns the new texts.
local function regrade_all(shapes, states, text, want_of, open, id)
  local texts, parts = {}, {}
  for part in (text .. ';'):gmatch('([^;]*);') do parts[#parts + 1] = part end
  for i = 12, #KEYS do
    local part = parts[i - 11] or ''
    texts[#texts + 1] = regrade(shapes[i], states[i], KEYS[i], part, want_of(ARGV[i * 4 - 22], part), open, id)
    shapes[i].write(states[i], KEYS[i], ARGV[i * 4 - 21], ARGV[i * 4 - 20])
  end
  return table.concat(texts, ';')
end

-- bury leaves the tombstone, for so many ms at least, and closes the record.
local function bury(id, text, least)
  call('HDEL', KEYS[2], id)
  call('HSET', KEYS[3], id, text)
  local life = max(tonumber(ARGV[8]), least or 0)
  if call('PTTL', KEYS[3]) < life then call('PEXPIRE', KEYS[3], num(life)) end
end

-- book appends to the ledger and adds to the day. `cost` is what this entry adds
-- to the bill, negative when a late settle corrects an expiry.
local function book(kind, now, cost, total, overrun, calls, estimated)
  if ARGV[21] == '' then return end
  local entry = ARGV[21] .. fmt(',"kind":"%s","at_us":%d,"cost_nano":%d,"total_nano":%d,"overrun_nano":%d}',
    kind, now, cost, total, overrun)
  call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[22], '*', 'e', entry)
  local day = floor(now / 86400000000) - ARGV[9]
  if roll(KEYS[6 + day], KEYS[9 + day], now, ARGV[10], ARGV[20], ARGV[24], 11, cost, calls, estimated, overrun, 0) then
    call('PEXPIRE', KEYS[4], ARGV[23]) -- once a day at least
  end
end

-- reconcile sets a charge aside that can no longer be told from a replay.
local function reconcile(now)
  if ARGV[21] == '' then return end
  call('RPUSH', KEYS[5], ARGV[21] .. fmt(',"at_us":%d,"cost_nano":%s}', now, ARGV[3]))
  call('LTRIM', KEYS[5], num(-RECONCILE_MAX), '-1')
  call('PEXPIRE', KEYS[5], ARGV[23])
end
