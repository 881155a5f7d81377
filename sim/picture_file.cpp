// Writes pictures; PNG with Cairo.
#include "picture_file.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

namespace {

/// The functions used from libcairo.so.2, whose functions keep their types over all its versions
/// (cairographics.org/manual). Loaded, not linked: the command starts without it.
class Cairo {
 public:
  struct Surface;
  struct Context;
  using WriteBytes = int(void* closure, const unsigned char* data, unsigned length);
  struct Extents {
    double x_bearing, y_bearing, width, height, x_advance, y_advance;
  };

  Cairo() {
    void* const library = ::dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw DeviceError("a PNG needs Cairo, which this machine does not have; install it (on Debian: libcairo2), or write .svg");
    }
    const auto load = [&](auto*& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr) throw DeviceError(concat("this machine's Cairo has no function ", name, "; write .svg instead"));
    };
    load(surface, "cairo_image_surface_create");
    load(context, "cairo_create");
    load(destroy, "cairo_destroy");
    load(destroy_surface, "cairo_surface_destroy");
    load(write_png, "cairo_surface_write_to_png_stream");
    load(scale, "cairo_scale");
    load(color, "cairo_set_source_rgb");
    load(rectangle, "cairo_rectangle");
    load(move_to, "cairo_move_to");
    load(line_to, "cairo_line_to");
    load(close_path, "cairo_close_path");
    load(fill, "cairo_fill");
    load(stroke, "cairo_stroke");
    load(line_width, "cairo_set_line_width");
    load(dash, "cairo_set_dash");
    load(font, "cairo_select_font_face");
    load(font_size, "cairo_set_font_size");
    load(extents, "cairo_text_extents");
    load(show, "cairo_show_text");
    load(save, "cairo_save");
    load(restore, "cairo_restore");
    load(rotate, "cairo_rotate");
    load(new_path, "cairo_new_path");
  }

  Surface* (*surface)(int format, int width, int height);
  Context* (*context)(Surface*);
  void (*destroy)(Context*);
  void (*destroy_surface)(Surface*);
  int (*write_png)(Surface*, WriteBytes*, void* closure);
  void (*scale)(Context*, double, double);
  void (*color)(Context*, double, double, double);
  void (*rectangle)(Context*, double, double, double, double);
  void (*move_to)(Context*, double, double);
  void (*line_to)(Context*, double, double);
  void (*close_path)(Context*);
  void (*fill)(Context*);
  void (*stroke)(Context*);
  void (*line_width)(Context*, double);
  void (*dash)(Context*, const double*, int, double);
  void (*font)(Context*, const char*, int slant, int weight);
  void (*font_size)(Context*, double);
  void (*extents)(Context*, const char*, Extents*);
  void (*show)(Context*, const char*);
  void (*save)(Context*);
  void (*restore)(Context*);
  void (*rotate)(Context*, double);
  void (*new_path)(Context*);
};

const Cairo& cairo() {
  static const Cairo loaded;
  return loaded;
}

void set_color(Cairo::Context* to, const std::string& color) {
  const auto part = [&](std::size_t at) {
    return static_cast<double>(std::strtol(color.substr(at, 2).c_str(), nullptr, 16)) / 255;
  };
  cairo().color(to, part(1), part(3), part(5));
}

void draw_words(Cairo::Context* to, const Shape& shape) {
  cairo().font_size(to, shape.size);
  Cairo::Extents size{};
  cairo().extents(to, shape.text.c_str(), &size);
  const double back = shape.anchor == TextAnchor::start ? 0
                      : shape.anchor == TextAnchor::end ? size.x_advance
                                                        : size.x_advance / 2;
  cairo().save(to);
  cairo().move_to(to, shape.points[0], shape.points[1]);
  if (shape.upright) {
    cairo().move_to(to, shape.points[0], shape.points[1] + back);
    cairo().rotate(to, -1.5707963267948966);
  } else {
    cairo().move_to(to, shape.points[0] - back, shape.points[1]);
  }
  cairo().show(to, shape.text.c_str());
  cairo().restore(to);
  cairo().new_path(to);
}

void draw_shape(Cairo::Context* to, const Shape& shape) {
  set_color(to, shape.color);
  if (shape.kind == Shape::Kind::words) return draw_words(to, shape);
  if (shape.kind == Shape::Kind::box) {
    cairo().rectangle(to, shape.points[0], shape.points[1], shape.points[2], shape.points[3]);
    return cairo().fill(to);
  }
  for (std::size_t i = 0; i + 1 < shape.points.size(); i += 2) {
    (i == 0 ? cairo().move_to : cairo().line_to)(to, shape.points[i], shape.points[i + 1]);
  }
  if (shape.kind == Shape::Kind::area) {
    cairo().close_path(to);
    return cairo().fill(to);
  }
  const double dashes[] = {5, 3};
  cairo().dash(to, dashes, shape.dashed ? 2 : 0, 0);
  cairo().line_width(to, shape.size);
  cairo().stroke(to);
}

/// @throws DeviceError  if Cairo fails, as for a picture that is too large
void write_png(const Drawing& drawing, OutputFile& file) {
  constexpr double scale = 2;  // dots per point
  constexpr int rgb = 1;       // CAIRO_FORMAT_RGB24
  Cairo::Surface* const surface =
      cairo().surface(rgb, static_cast<int>(drawing.width * scale), static_cast<int>(drawing.height * scale));
  Cairo::Context* const context = cairo().context(surface);
  cairo().scale(context, scale, scale);
  cairo().font(context, "sans-serif", 0, 0);
  set_color(context, "#ffffff");
  cairo().rectangle(context, 0, 0, drawing.width, drawing.height);
  cairo().fill(context);
  for (const Shape& shape : drawing.shapes) draw_shape(context, shape);
  std::string bytes;
  const int status = cairo().write_png(
      surface,
      [](void* closure, const unsigned char* data, unsigned length) {
        static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(data), length);
        return 0;  // CAIRO_STATUS_SUCCESS
      },
      &bytes);
  cairo().destroy(context);
  cairo().destroy_surface(surface);
  if (status != 0) throw DeviceError(concat("Cairo cannot write this picture as PNG (status ", status, "); write .svg instead"));
  file(bytes);
}

}  // namespace

PictureFile::PictureFile(const char* flag, const std::string& path) {
  if (path.empty()) return;
  png_ = path.ends_with(".png");
  if (!png_ && !path.ends_with(".svg")) {
    throw InputError(concat(flag, " ", quote(path), " must end in .svg or .png, which says the picture's format"));
  }
  if (png_) cairo();
  file_.emplace(path);
}

void PictureFile::write(const Drawing& drawing) {
  if (png_) {
    write_png(drawing, *file_);
  } else {
    (*file_)(svg(drawing));
  }
  file_->finish();
}

}  // namespace tawpipe::sim
