-- hold: all limits of one call at once, all or nothing, idempotent on the id.
-- Libraries: time, shapes. Lines after "--@ each" are written out for each limit,
-- with its number for $ (see lua.go): a function or a loop costs what a command costs.
--
-- KEYS  1 holds (HASH id -> record)   2 leases (ZSET id by end)
--       3 done (HASH id -> tombstone) 4.. one state key per limit
--       last: mark, the loss of data that the org suffered
-- ARGV  1 now (empty: Redis TIME)  2 id  3 lease us  4 lifetime of KEYS 1, 2 in ms
--       5 "max cost,expected cost,max tokens,expected tokens"  6 meta (opaque)
--       7.. per limit: kind, enforce 0|1, amount, cost, p1, p2
--       last: the mark as the caller believes it
-- Record: "<at>,<ARGV 5>|<limit>;<limit>..|<meta>", a limit "<charged> <place>:<amount>.."
-- Reply "held,<at>" and per limit ";<state as written>", or as for refused when a
--       limit in the shadow did not fit
--       "refused,<at>" and per limit ";=<used>,<held>,<resets>,<frees>,<refused 0|1>"
--       "again,<at>" it is held already | "done,<at>" it has ended | "skew,<at>"
--       "stale,<at>.." nothing was held: a limit has more to forget, run it again
--       "mark,<at>,<mark>" the mark is another, -1: there is none; nothing was done

local K, A = KEYS, ARGV
local now = now_us(A[1])
local at, id = num(now), A[2]
local refused, told, stale = false, false, false

if call('HEXISTS', K[3], id) == 1 then return 'done,' .. at end
local mark = call('GET', K[#K]) or '-1'
if mark ~= A[#A] then return 'mark,' .. at .. ',' .. mark end

--@ each
--@ own st$, over$, text$
do
  local key, p1, p2, st = K[3 + $], A[5 + 6 * $], A[6 + 6 * $], nil
  --@ read
  if not st then return 'skew,' .. at end
  local over = st.used + A[4 + 6 * $] - A[3 + 6 * $]
  if over > 0 then
    told = true
    if A[2 + 6 * $] == '1' then refused = true end
  end
  if st.partial then stale = true end
  st$, over$ = st, over
end
--@ end

if not refused and not stale then
  local record = at .. ',' .. A[5] .. '|'
  --@ each
  do
    local st, p1, p2, n, nth, held, place = st$, A[5 + 6 * $], A[6 + 6 * $], A[4 + 6 * $] + 0, 1, true, nil
    --@ charge
    record = record .. ($ == 1 and '' or ';') .. A[4 + 6 * $] .. ' ' .. place .. ':' .. A[4 + 6 * $]
  end
  --@ end

  -- First write, refused by Redis when memory is full: then nothing is held.
  if call('HSETNX', K[1], id, record .. '|' .. A[6]) == 0 then return 'again,' .. at end
  call('ZADD', K[2], num(now + A[3]), id)
  if call('PTTL', K[1]) - A[4] < -DAY_MS then -- new, or nothing has prolonged it for a day
    call('PEXPIRE', K[1], A[4])
    call('PEXPIRE', K[2], A[4])
  end
  --@ each
  do
    local key, p1, p2, st, text = K[3 + $], A[5 + 6 * $], A[6 + 6 * $], st$, nil
    --@ write
    text$ = ';' .. text
  end
  --@ end
  if not told then
    local out = 'held,' .. at
    --@ each
    out = out .. text$
    --@ end
    return out
  end
elseif not stale and call('HEXISTS', K[1], id) == 1 then
  return 'again,' .. at -- what was held before is not in the way of itself
end

--@ shapes
local out = (stale and 'stale,' or refused and 'refused,' or 'held,') .. at
--@ each
if stale or refused or over$ > 0 then
  local key, p1, s = K[3 + $], A[5 + 6 * $], whole(A[1 + 6 * $])
  if refused and st$.other then
    call('HDEL', key, '') -- first write, never refused for memory
    s.refill(st$)
    s.write(st$, key, p1, A[6 + 6 * $])
  elseif (stale or refused) and (st$.stale or 0) > 100 then
    s.write(st$, key, p1, A[6 + 6 * $])
  end
  text$ = row(st$, over$, s.look(st$, key, p1, max(over$, 0)))
end
out = out .. text$
--@ end
return out
