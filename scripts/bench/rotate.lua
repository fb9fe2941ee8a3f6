--[[
The load of check.lua with requests that differ.

  wrk ... -s rotate.lua URL -- BODY_FILE EXPECTED_FILE exact|loose|refused [KEYS_FILE]

Each line of BODY_FILE is a body, and each line of KEYS_FILE a gateway key. The requests have the bodies and the keys
in turn. The expected answer is the same for all of them.
]]
dofile("scripts/bench/check.lua")
local initialize = init

local function lines(path)
  local all = {}
  for line in io.lines(path) do table.insert(all, line) end
  return all
end

function init(arguments)
  initialize(arguments)
  requests, place = {}, 0
  local bodies = lines(arguments[1])
  local keys = arguments[4] and lines(arguments[4]) or { false }
  for index = 1, math.max(#bodies, #keys) do
    local key = keys[(index - 1) % #keys + 1]
    if key then wrk.headers["gateway-auth"] = "Bearer " .. key end
    table.insert(requests, wrk.format(nil, nil, nil, bodies[(index - 1) % #bodies + 1]))
  end
end

function request()
  place = place % #requests + 1
  return requests[place]
end
