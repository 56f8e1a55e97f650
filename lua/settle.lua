-- settle: replaces a hold by the actual cost, writes ledger and roll-ups, leaves a
-- tombstone. Idempotent: a replay returns the stored charge.
-- Libraries: time, shapes, roll. KEYS, ARGV and reply stand in ending.lua; want = the
-- actual amount of the limit's metric. Lines after "--@ each" are written out for each
-- limit, as in hold.
--
-- An open hold that was never extended is settled here; all others in settle_other.
-- verdict: settled | replayed | old | keys | skew

local K, A = KEYS, ARGV
local now = now_us(A[1])
local id, cost = A[2], A[3] + 0
local day = floor(now / 86400000000) - A[9]
local most, pos

local record = call('HGET', K[2], id) -- while it is there, there is no tombstone
if record and day >= 0 and day <= 2 then most, pos = record:match('^%d+,(%d+)[^|]*()|') end

do
--@ each
--@ own had$, place$, st$
  if pos then
    local part
    had$, place$, part, pos = record:match($ == 1 and '^|(%d+) ([^ :]+):(%d+)()' or '^;(%d+) ([^ :]+):(%d+)()', pos)
    if part ~= had$ then pos = nil end
  end
  if pos then
    local key, p1, p2, st = K[11 + $], A[23 + 4 * $], A[24 + 4 * $], nil
    --@ read
    if not st then pos = nil end
    st$ = st
  end
--@ end

  if pos and record:byte(pos) == 124 and (#K > 11 or record:byte(pos + 1) == 124) then -- |
    call('ZREM', K[1], id) -- first write, never refused for memory
    --@ each
    do
      local key, p1, p2, st = K[11 + $], A[23 + 4 * $], A[24 + 4 * $], st$
      local had, want, place, open, back, text = had$ + 0, A[22 + 4 * $] + 0, place$, true, 0, nil
      do
        local from, to, nth = had, min(had, want), 1
        --@ change
      end
      if want > had then
        local n, held, nth = want - had, false, 'o'
        --@ charge
      end
      --@ write
    end
    --@ end
    local at, c, more = num(now), A[3], '0'
    local overrun = cost - most
    if overrun > 0 then more = num(overrun) end
    call('HDEL', K[2], id)
    call('HSET', K[3], id, 'S,' .. c .. ',' .. more .. ',' .. at)
    if call('PTTL', K[3]) - A[8] < -600000 then call('PEXPIRE', K[3], A[8]) end
    if A[21] ~= '' then
      call('XADD', K[4], 'MAXLEN', '~', A[22], '*', 'e', A[21] .. ',"kind":"settle","at_us":' .. at ..
        ',"cost_nano":' .. c .. ',"total_nano":' .. c .. ',"overrun_nano":' .. more .. '}')
      local estimated = A[5] == '1' and cost or 0
      if roll(K[6 + day], K[9 + day], now, A[10], A[20], A[24], 11, cost, 1, estimated, max(overrun, 0), 0) then
        call('PEXPIRE', K[4], A[23]) -- once a day at least
      end
    end
    return 'settled,' .. at .. ',' .. c .. ',' .. more .. ',0,' .. at
  end
end

--@ shapes
--+ ending
--+ settle_other
