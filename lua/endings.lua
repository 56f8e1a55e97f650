-- Library: the keys and arguments of settle, void and expire, which end holds (needs time,
-- shapes, shape_of, arguments, limits).
--
-- KEYS  per org: leases, holds, done (HASH id -> tombstone), ledger (STREAM), reconcile (LIST),
--       roll-ups of three UTC days in a row (HASH), roll-ups of their hours (HASH), sums by label of
--       the days (HASH), then the state key of each limit, then the sums of each call: what its
--       job and its batch cost (STRING)
-- ARGV  now (empty: Redis TIME), number of orgs
--       per org: number of the first of the three days, horizon in us, lifetime of done in ms,
--         maximum fields of a day, ledger length, lifetime of ledger and reconcile in ms,
--         lifetime of the roll-ups of days in ms, number of limits, number of calls
--         per limit: kind, p1, p2
--         the ids of the calls, each once
--         per call: cost, max cost as the holder knows it, estimated 0|1, since (us of the
--           admission), roll-up field, fields of the sums by label, each with a comma behind it,
--           ledger entry (JSON without its closing brace; empty: no
--           books are kept), nine tokens and costs by class, as in roll, number of its sums, the
--           lifetime of each in ms, number of its limits
--           per limit of the call, in the order of the hold: its number among the org's, want
-- Tombstones: "S,<charged>,<overrun>,<at>" settled, "V" voided,
--       "X,<charged>,<max>,<at>|<limits>|<meta>" expired, open to a late settle.
-- Reply a list, for each call "<verdict>,<now>,<charged>,<overrun>,<late 0|1>,<at>", `at` the
--       time of the settle that is replayed; verdict keys: the hold has other limits than
--       those declared, nothing was done; skew: Go's days or calendar do not include now

local given, orgs = next_args(2)
local now = now_us(given)

-- What all calls of the current org share. `today` is nil if the three days do not include now.
local leases, holds, done, ledger, reconcile, today, hours, by_label
local horizon -- luacheck: ignore 231 (settle reads it)
local done_life, most_fields, ledger_length, ledger_life, rollup_life

-- next_org reads an org with its limits and returns the ids of its calls.
local function next_org()
  local first_day, limit_count, call_count
  first_day, horizon, done_life, most_fields, ledger_length, ledger_life, rollup_life = next_args(7)
  limit_count, call_count = next_args(2)
  leases, holds, done, ledger, reconcile = next_keys(5)
  local days, day = { next_keys(9) }, floor(now / 86400000000) - first_day
  today, hours, by_label = nil, nil, nil
  if day >= 0 and day <= 2 then today, hours, by_label = days[1 + day], days[4 + day], days[7 + day] end
  next_limits(limit_count + 0)
  return { next_args(call_count) }
end

-- next_ending reads how a call ends.
local function next_ending(id)
  local cost, most, estimated, since, field, labels, entry = next_args(7)
  local ending = { id = id, cost = cost, most = most, estimated = estimated == '1', since = since,
    field = field, labels = labels, entry = entry, usage = args_read + 1, -- start of tokens and costs in ARGV
    i = false, held = false, overrun = false, sums = false } -- for settle; a table that grows is reallocated
  args_read = args_read + 9
  local n = next_args(1) + 0
  if n > 0 then ending.sums = { keys = { next_keys(n) }, lives = { next_args(n) } } end
  for i = 1, next_args(1) + 0 do
    local number, want = next_args(2)
    ending[i] = { limit = limits[number + 0], want = want, place = false, had = false }
  end
  return ending
end

-- add_to_sums adds what an entry of the ledger adds to the bill to the costs of the call's job and batch.
local function add_to_sums(sums, cost)
  if not sums or cost == 0 then return end -- most calls are no job's
  for i = 1, #sums.keys do
    call('INCRBY', sums.keys[i], num(cost))
    call('PEXPIRE', sums.keys[i], sums.lives[i])
  end
end
