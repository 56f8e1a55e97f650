-- shadow_since: notes since when limits are in shadow mode; what is noted stays.
-- Libraries: time.
--
-- KEYS  1 shadow_since (HASH of ms by limit and shape; 0: longer than anything was noted)
--       2 ledger (STREAM)
-- ARGV  1 now  2.. limits with their shapes
-- Reply "ok"

local at = int(math.floor(now_us(ARGV[1]) / 1000))
-- An org that had calls before its limits were first noted: nobody knows since when they are.
if redis.call('HSETNX', KEYS[1], 'noted', at) == 1 and redis.call('EXISTS', KEYS[2]) == 1 then at = '0' end
for a = 2, #ARGV do redis.call('HSETNX', KEYS[1], ARGV[a], at) end
return 'ok'
