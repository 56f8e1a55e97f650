-- shadow_since: records since when limits are in shadow mode; recorded times are kept.
-- Libraries: time.
--
-- KEYS  1 shadow_since (HASH of ms by limit and shape; 0: since before recording began)
--       2 ledger (STREAM)
-- ARGV  1 now  2.. limits with their shapes
-- Reply "ok"

local noted, ledger = KEYS[1], KEYS[2]
local given = ARGV[1]
local at = int(math.floor(now_us(given) / 1000))
-- If an org had calls before its limits were first recorded, the time is unknown.
if redis.call('HSETNX', noted, 'noted', at) == 1 and redis.call('EXISTS', ledger) == 1 then at = '0' end
for i = 2, #ARGV do
  local limit = ARGV[i]
  redis.call('HSETNX', noted, limit, at)
end
return 'ok'
