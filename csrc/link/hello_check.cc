#include "csrc/link/hello_check.h"

#include "csrc/link/serials.h"
#include "csrc/protocol/messages.h"

namespace pccl::link {

using protocol::LaneHello;

LaneHello hello_of(const Identity& self, PeerId other, uint32_t serial, bool further) {
  return {.run_id = self.run_id,
          .self = self.self,
          .other = other,
          .machine = self.machine,
          .serial = serial,
          .further = further};
}

std::string refusal(const Identity& self, const LaneState& lane,
                    const std::optional<LaneHello>& hello, uint32_t last_serial) {
  if (!hello) return "it did not introduce itself";
  if (!hello->versions.contains(self.version)) {
    return protocol::mismatch({"that peer", hello->versions},
                              protocol::speaker_of_run("this run", self.version));
  }
  if (hello->run_id != self.run_id) return "it belongs to another run";
  if (hello->other != self.self) return "it looks for peer " + text(hello->other);
  const PeerId claimed = hello->self;
  if (!claimed || claimed == self.self || (lane.dialled && claimed != lane.peer))
    return "it says that it is peer " + text(claimed);
  if (!lane.dialled && lane.credential && claimed != lane.credential->identity.dialler)
    return "it has proven to be peer " + text(lane.credential->identity.dialler) +
           ", and says that it is peer " + text(claimed);
  if (!lane.dialled && lane.credential && hello->serial != lane.serial)
    return "it has proven connection " + std::to_string(lane.serial) +
           ", and speaks of connection " + std::to_string(hello->serial);
  if (lane.dialled && hello->serial != lane.serial)
    return "it speaks of connection " + std::to_string(hello->serial);
  std::string wrong =
      Serials::refusal(hello->serial, last_serial, lane.dialled == (self.self > claimed));
  if (!wrong.empty()) return wrong;
  if ((lane.dialled || lane.credential) && hello->further != lane.further)
    return hello->further ? "it speaks of a further lane" : "it speaks of a first lane";
  return {};
}

}  // namespace pccl::link
